import json
import statistics
from operator import eq
from pathlib import Path

import pytest

from extproc.lab.simulator.results import Row, summarize
from extproc.lab.simulator.study import study
from extproc.lab.simulator.trial import (
    STRATEGIES,
    Setup,
    infinite_cache_hit_rate,
    simulate,
    workload,
)
from extproc.lab.simulator.workloads import WORKLOADS


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_policy_answers_every_request(strategy: str) -> None:
    setup = Setup("chat", replicas=3, limit=60)
    records = simulate(setup, strategy, 1)
    row = summarize(strategy, 3, [records])
    assert row.requests == 60
    assert row.failed == 0
    assert min(records.ttft_s) > 0
    assert set(records.replica) <= {0, 1, 2}
    assert row.hit_rate <= infinite_cache_hit_rate(workload(setup, 1)) + 0.02


@pytest.mark.parametrize("name", WORKLOADS)
def test_workloads_have_as_many_requests_as_they_say(name: str) -> None:
    setup = Setup(name, replicas=4, limit=400)
    records = simulate(setup, "kv_aware", 1)
    assert len(records.sent_s) == workload(setup, 1).requests
    assert list(records.sent_s) == sorted(records.sent_s)


@pytest.mark.parametrize("strategy", ["random", "kv_aware", "longest_match_3_2"])
def test_a_seed_decides_all(strategy: str) -> None:
    setup = Setup("hot-prefix", replicas=3, routers=2, shared=False, limit=100)
    first, second, other = (simulate(setup, strategy, seed) for seed in (1, 1, 2))
    assert first == second
    assert first.sent_s != other.sent_s


def test_routers_that_share_their_state_decide_like_one() -> None:
    one = simulate(Setup("agent", replicas=4, limit=240), "kv_aware", 1)
    eight = simulate(Setup("agent", replicas=4, limit=240, routers=8), "kv_aware", 1)
    # But for the prefill rate, which each learns from the requests that it sees.
    equal = sum(map(eq, one.replica, eight.replica))
    assert equal > 0.9 * len(one.replica)


def test_routers_that_share_nothing_meet_at_the_home_of_a_prompt() -> None:
    def row(strategy: str, *, shared: bool) -> Row:
        setup = Setup("agent", replicas=4, limit=480, routers=4, shared=shared)
        return summarize(strategy, 4, [simulate(setup, strategy, 1)])

    together, apart = row("kv_aware", shared=True), row("kv_aware", shared=False)
    assert together.hit_rate - 0.05 < apart.hit_rate
    blind = row("least_outstanding_requests", shared=True)
    assert apart.ttft_mean_s < 0.5 * blind.ttft_mean_s


def test_prompts_in_common_are_worth_finding() -> None:
    setup = Setup("agent", replicas=4, limit=480)
    means = {
        strategy: statistics.fmean(simulate(setup, strategy, 1).ttft_s)
        for strategy in ("random", "least_outstanding_requests", "kv_aware")
    }
    assert means["kv_aware"] < 0.7 * min(means["random"], means["least_outstanding_requests"])


def test_equal_cold_prompts_are_not_computed_everywhere() -> None:
    setup = Setup("burst", replicas=8, limit=400)
    row = summarize("kv_aware", 8, [simulate(setup, "kv_aware", 1)])
    # 200 prompts of 8,000 tokens, and as many of about 1,500 with nothing in common.
    assert row.hit_rate > 0.7


def test_settings_of_the_pool_hold() -> None:
    plain = simulate(Setup("chat", replicas=2, limit=120), "kv_aware", 1)
    heavy = {"decode-weight": "1000000"}
    even = simulate(Setup("chat", replicas=2, limit=120, settings=heavy), "kv_aware", 1)
    assert plain.replica != even.replica


def test_a_smaller_cache_finds_less() -> None:
    rows = [
        summarize(
            "random",
            2,
            [simulate(Setup("agent", replicas=2, limit=240, cache_tokens=size), "random", 1)],
        )
        for size in (60_000, 0)
    ]
    assert rows[0].hit_rate < rows[1].hit_rate


def test_the_bound_of_a_trace(tmp_path: Path) -> None:
    line = {"timestamp": 0, "input_length": 1024, "output_length": 1, "hash_ids": [1, 2]}
    file = tmp_path / "trace.jsonl"
    file.write_text(f"{json.dumps(line)}\n" * 2)
    sent = workload(Setup(str(file)), 1)
    assert infinite_cache_hit_rate(sent) == 1008 / 2048


def test_seeds_are_averaged_and_processes_agree() -> None:
    setup = Setup("no-sharing", replicas=2, limit=40)
    sent: list[int] = []
    alone = study(setup, ["random", "kv_aware"], [1, 2], jobs=1, progress=sent.append)
    together = study(setup, ["random", "kv_aware"], [1, 2], jobs=2)
    assert [outcome.row for outcome in alone] == [outcome.row for outcome in together]
    row = alone[1].row
    assert (row.strategy, row.seeds, row.requests) == ("kv_aware", 2, 40)
    means = [statistics.fmean(records.ttft_s) for records in alone[1].runs]
    assert row.ttft_mean_s == pytest.approx(statistics.fmean(means))
    assert row.ttft_mean_spread_s == pytest.approx(statistics.stdev(means))
    assert sent[-1] == 4 * 40


@pytest.mark.parametrize("source", ["hot-prefix", "no-sharing", "chat"])
def test_routers_that_share_nothing_are_not_worse_than_least_outstanding(source: str) -> None:
    def mean_s(strategy: str) -> float:
        setup = Setup(source, replicas=8, limit=3000, routers=8, shared=False)
        return statistics.fmean(simulate(setup, strategy, 1).ttft_s)

    assert mean_s("kv_aware") < 1.05 * mean_s("least_outstanding_requests")
