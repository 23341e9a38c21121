import pytest

from extproc.lab.bench.overhead import ProcessorTime, RouterCost
from extproc.lab.bench.rows import Floor, Round, floor, pool
from extproc.lab.counters import Counters
from extproc.lab.experiment import Outcome, summarize
from extproc.lab.load import Record
from extproc.lab.replica.latency import DEFAULT_PROFILE, PROFILES, Chunk
from extproc.lab.workload import Conversation, Workload


def part(ttft_s: float, hits: int, cost: RouterCost) -> Round:
    counted = {"a:1": Counters(100, hits, 3), "b:1": Counters(100, 0, 1)}
    records = [Record(0.0, ttft_s, 2.0, 200) for _ in range(4)]
    outcome = Outcome(summarize("kv_aware", records, counted), records, counted)
    return Round(outcome, Floor(10, 9, 0.01, 0.02), cost, ProcessorTime(1, 2, 4), prompts=2)


def test_rounds_are_pooled_in_the_models_time() -> None:
    rounds = [
        part(0.1, 100, RouterCost(4, 0.4, {1.0: 4}, 1)),
        part(0.9, 50, RouterCost(4, 0.8, {1.0: 4}, 2)),
        part(0.2, 0, RouterCost(8, 0.4, {1.0: 8}, 1)),
    ]
    row = pool("saturation", 2.0, rounds)
    assert (row.strategy, row.speed, row.rounds, row.replicas) == ("kv_aware", 2.0, 3, 2)
    assert row.ttft_p50_s == pytest.approx(0.4)  # the median round's 0.2 s, at twice the speed
    assert row.requests_per_s == pytest.approx(1.0)
    assert row.hit_rate == pytest.approx(150 / 600)
    assert (row.share_min, row.share_max) == (0.25, 0.75)
    assert (row.requests, row.failed, row.prompts) == (12, 0, 6)
    assert row.decision_mean_s == pytest.approx(0.1)
    assert row.router_cpu_s == pytest.approx(0.25)
    assert (row.cpu_own, row.cpu_busy) == (0.25, 0.5)
    assert row.infinite_hit_rate == pytest.approx(0.9)


def test_the_floor_is_the_prefill_of_what_was_never_sent_before() -> None:
    # 2060 bytes are 515 tokens; of all prompts but the first 16 blocks are known.
    chats = [
        Conversation(at_s, "s" * 1016, [mark * 1017], output_tokens=1)
        for at_s, mark in enumerate("abcde")
    ]
    profile = PROFILES[DEFAULT_PROFILE]
    bound = floor(Workload("", "m", chats), profile)
    assert bound.cached / bound.tokens == pytest.approx(4 * 256 / (5 * 515))
    assert bound.ttft_p50_s == pytest.approx(profile.prefill_s([Chunk(259, 256)]))
    assert bound.ttft_p50_s < bound.ttft_p90_s < profile.prefill_s([Chunk(515, 0)])
