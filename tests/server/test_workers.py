"""Several processes: their addresses, their restarts, their end."""

import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from extproc.server.workers import Supervisor, settings_of_worker
from extproc.settings import load


@pytest.mark.parametrize(
    ("listen", "admin", "expected"),
    [
        ("127.0.0.1:9002", "127.0.0.1:9103", ("127.0.0.1:9004", "127.0.0.1:9105")),
        ("[::1]:9002", "", ("[::1]:9004", "")),
        ("127.0.0.1:0", "[::1]:0", ("127.0.0.1:0", "[::1]:0")),
        ("unix:/run/r.sock", "[::]:1", ("unix:/run/r.sock.2", "[::]:3")),
    ],
)
def test_each_worker_has_its_own_addresses(
    listen: str, admin: str, expected: tuple[str, str]
) -> None:
    settings = load({"listen": listen, "admin": admin, "workers": "3"})

    first, third = settings_of_worker(settings, 0), settings_of_worker(settings, 2)

    assert (first.listen, first.admin, first.workers) == (listen, admin, 1)
    assert (third.listen, third.admin) == expected


def test_each_worker_has_its_own_decision_log_under_one_key() -> None:
    flags = {"listen": "127.0.0.1:0", "admin": "", "workers": "2", "decision_log": "/logs/x"}

    first, second = (worker._settings for worker in Supervisor(load(flags))._workers)

    assert (first.decision_log, second.decision_log) == ("/logs/x", "/logs/x.1")
    assert first.decision_log_key is not None
    assert first.decision_log_key == second.decision_log_key
    none = settings_of_worker(load({"workers": "2"}), 1)
    assert (none.decision_log, none.decision_log_key) == ("", None)


@pytest.mark.parametrize(
    ("store", "of_worker"),
    [
        ("memory://", "memory://separate?routers=3"),
        ("memory://separate?routers=4", "memory://separate?routers=12"),
        ("redis://localhost", "redis://localhost"),
    ],
)
def test_workers_that_share_nothing_know_how_many_they_are(store: str, of_worker: str) -> None:
    flags = {"listen": "127.0.0.1:0", "admin": "", "workers": "3", "store": store}
    found = {worker._settings.store for worker in Supervisor(load(flags))._workers}
    assert found == {of_worker}


def free_ports(count: int) -> int:
    """The first of ``count`` free ports in a row."""
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            first: int = probe.getsockname()[1]
        try:
            for port in range(first, first + count):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", port))
        except OSError:
            continue
        return first


class Supervised:
    def __init__(self, process: asyncio.subprocess.Process, ports: list[int]) -> None:
        self.process = process
        self.ports = ports
        self.lines: list[dict[str, Any]] = []

    async def log(self, event: str) -> dict[str, Any]:
        """Read the log up to an event."""
        assert self.process.stderr is not None
        while line := await self.process.stderr.readline():
            entry = json.loads(line)
            if entry["event"] == event:
                return dict(entry)
        raise AssertionError(f"the log ended without {event!r}")

    async def healthy(self, port: int) -> bool:
        try:
            async with (
                aiohttp.ClientSession() as client,
                client.get(f"http://127.0.0.1:{port}/healthz") as response,
            ):
                return response.status == 200
        except aiohttp.ClientError:
            return False


@asynccontextmanager
async def supervised() -> AsyncIterator[Supervised]:
    ports = free_ports(4)
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "extproc", "serve", "--workers", "2", "--log-format", "json"),
        *("--listen", f"127.0.0.1:{ports}", "--admin", f"127.0.0.1:{ports + 2}"),
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield Supervised(process, [ports + 2, ports + 3])
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def test_a_worker_that_dies_is_replaced_and_all_end_with_the_supervisor() -> None:
    async with supervised() as running:
        await running.log("workers share nothing")
        pids = {}
        for _ in range(2):
            entry = await running.log("worker started")
            pids[entry["worker"]] = entry["pid"]
        for _ in range(2):
            await running.log("serving")
        assert [await running.healthy(port) for port in running.ports] == [True, True]

        os.kill(pids[1], signal.SIGKILL)
        assert (await running.log("worker ended"))["exit_code"] == -signal.SIGKILL
        again = await running.log("worker started")
        assert again["worker"] == 1
        await running.log("serving")
        assert [await running.healthy(port) for port in running.ports] == [True, True]

        running.process.send_signal(signal.SIGTERM)
        assert await running.process.wait() == 0
        assert [await running.healthy(port) for port in running.ports] == [False, False]


async def test_workers_do_not_outlive_a_killed_supervisor() -> None:
    async with supervised() as running:
        for _ in range(2):
            await running.log("serving")

        running.process.kill()
        for _ in range(2):
            await running.log("stopped")
