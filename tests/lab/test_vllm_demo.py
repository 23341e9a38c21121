import io
import json
import re
import sys
from collections import Counter
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path

import pytest
from aiohttp.test_utils import BaseTestServer, TestServer
from rich.console import Console

from extproc.lab import load
from extproc.lab.demo import STRATEGIES, DemoOptions
from extproc.lab.experiment import Row, summarize
from extproc.lab.replica.http import Replica, ReplicaSettings
from extproc.lab.vllm import BLOCK_TOKENS
from extproc.lab.vllm_demo import (
    PREFIX_TOKENS,
    best_hit_rate,
    hits_and_misses,
    repeated_prefixes,
    run_vllm_demo,
)


@pytest.fixture
async def server() -> AsyncIterator[BaseTestServer]:
    replica = Replica(ReplicaSettings(name="r1", speed=float("inf")))
    async with TestServer(replica.application) as running:
        yield running


def test_each_of_6_prefixes_of_whole_blocks_comes_once_in_each_of_4_rounds() -> None:
    workload = repeated_prefixes("1 random")
    systems = [chat.system for chat in workload.conversations]
    assert Counter(systems).most_common()[0][1] == 4
    assert all(len(set(systems[start : start + 6])) == 6 for start in range(0, 24, 6))
    # with the role before it and the end after it
    assert {len(system.split(" ")) + 2 for system in systems} == {4096}
    assert PREFIX_TOKENS % BLOCK_TOKENS == 0
    assert len({chat.turns[0] for chat in workload.conversations}) == 24


def test_strategies_share_no_prefix_but_a_seed_repeats_them() -> None:
    random, other = repeated_prefixes("1 random"), repeated_prefixes("1 kv_aware")
    assert random == repeated_prefixes("1 random")
    starts = {chat.system[:128] for workload in (random, other) for chat in workload.conversations}
    assert len(starts) == 12


def test_the_best_hit_rate_leaves_room_for_the_questions_alone() -> None:
    assert best_hit_rate() == pytest.approx(18 * 4096 / (24 * 4107))


async def test_a_request_waits_for_the_end_of_the_one_before(server: BaseTestServer) -> None:
    workload = repeated_prefixes("1")
    records = await load.run(workload, str(server.make_url("")).rstrip("/"))
    assert all(record.ok for record in records)
    assert len(records) == 24
    for before, after in pairwise(records):
        assert after.sent_s >= before.ended_s
    assert [record.hit for record in records] == [False] * 6 + [True] * 18


def test_a_row_tells_hits_from_misses() -> None:
    def record(ttft_s: float, cached_tokens: int) -> load.Record:
        return load.Record(0.0, ttft_s, 9.0, 200, prompt_tokens=100, cached_tokens=cached_tokens)

    row = summarize("random", [record(2.0, 0), record(3.0, 16), record(0.1, 96)], {})
    assert (row.ttft_hit_p50_s, row.ttft_miss_p50_s) == (0.1, 2.5)
    assert "random 1,700 ms 100 ms 2,500 ms 25 times" in rendered(row)

    row = summarize("random", [record(2.0, 0)], {})
    assert row.ttft_hit_p50_s is None
    assert "times" not in rendered(row)


def rendered(row: Row) -> str:
    out = io.StringIO()
    Console(file=out, width=100).print(hits_and_misses([row]))
    return " ".join(re.findall(r"[\w,.]+", out.getvalue()))


# Takes vLLM's command line, and serves a simulated replica instead.
STAND_IN = """#!/bin/sh
while [ "$1" != --port ]; do shift; done
exec {python} -m extproc.lab.cli lab replica --speed inf --listen 127.0.0.1:$2
"""


async def test_the_whole_demo_with_simulated_replicas_in_vllms_place(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(STAND_IN.format(python=sys.executable))
    python.chmod(0o755)
    out = io.StringIO()
    options = DemoOptions(replicas=2, output=tmp_path / "out", json_file=tmp_path / "rows.json")
    await run_vllm_demo(options, python, Console(file=out, width=120))

    assert "P50 of hits" in out.getvalue()
    rows = {
        row["strategy"]: row for row in json.loads((tmp_path / "rows.json").read_text())["rows"]
    }
    assert tuple(rows) == STRATEGIES
    assert all((row["requests"], row["failed"]) == (24, 0) for row in rows.values())
    assert rows["kv_aware"]["hit_rate"] >= 0.74
    assert rows["prefix_aware"]["hit_rate"] >= 0.74
    assert 0.45 <= rows["random"]["hit_rate"] < 0.7
