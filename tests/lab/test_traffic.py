import asyncio
import sys

import pytest
from aiohttp.test_utils import BaseTestServer

from extproc.lab import traffic
from extproc.lab.load import Record
from extproc.lab.traffic import Traffic, send, summary
from tests.lab.test_load import server, url

__all__ = ["server"]  # a fixture

SMALL = Traffic(rate=200, requests=12, groups=3, prefix_tokens=200)


async def command(*arguments: str) -> tuple[int | None, str]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "extproc", "lab", "load", "--rate=200", "--prefix-tokens=200"),
        *arguments,
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await process.communicate()
    return process.returncode, output.decode()


def test_rounds_end_with_the_requests_and_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traffic, "ROUND", 5)

    rounds = list(SMALL.rounds())

    assert [workload.requests for workload in rounds] == [5, 5, 2]
    prefixes = [{chat.system for chat in workload.conversations} for workload in rounds]
    assert [len(each) for each in prefixes] == [3, 3, 2]
    assert len(set.union(*prefixes)) == 8


def test_traffic_goes_on() -> None:
    rounds = Traffic(rate=1, groups=1, prefix_tokens=1).rounds()

    assert [next(rounds).requests for _ in range(3)] == [traffic.ROUND] * 3


async def test_what_came_of_it_is_told(server: BaseTestServer) -> None:
    lines: list[str] = []

    assert await send(SMALL, url(server), lines.append) == 0

    (line,) = lines
    assert line.startswith("12 requests, 0 failed, hit rate ")
    assert " TTFT P50 " in line


async def test_the_command_succeeds_with_its_requests(server: BaseTestServer) -> None:
    status, output = await command("--url", url(server), "--requests", "4")

    assert status == 0
    assert output.startswith("4 requests, 0 failed, hit rate ")


async def test_the_command_fails_with_its_requests(server: BaseTestServer) -> None:
    gone = url(server)
    await server.close()

    status, output = await command("--url", gone, "--requests", "2")

    assert status == 1
    assert output.startswith("2 requests, 2 failed; ")


def test_a_failure_without_a_word_is_told_by_its_status() -> None:
    assert summary([Record(0, -1, 1, 503)]) == "1 requests, 1 failed; status 503"
