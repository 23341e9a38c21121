from collections.abc import Sequence

import pytest

from extproc.lab.replica.latency import PROFILES, Chunk
from extproc.lab.simulator.calls import Call, Change, Workload
from extproc.lab.simulator.fleet import Fleet
from extproc.lab.simulator.loop import Records, Simulation

H100 = PROFILES["llama-3.1-70b/8xh100"]


class Fixed:
    """Sends each call where it is told, and writes down what it hears."""

    def __init__(self, replicas: Sequence[int]) -> None:
        self.replicas = replicas
        self.heard: list[tuple[str, int]] = []
        self.members: list[list[int]] = []

    def choose(self, call: Call, members: Sequence[int]) -> int:
        self.heard.append(("choose", call.number))
        self.members.append(list(members))
        return self.replicas[call.number]

    def first_token(self, call: Call) -> None:
        self.heard.append(("first", call.number))

    def ended(self, call: Call) -> None:
        self.heard.append(("ended", call.number))

    def left(self, replica: int) -> None:
        self.heard.append(("left", replica))


def run(
    calls: Sequence[Call],
    replicas: Sequence[int],
    *,
    changes: Sequence[Change] = (),
    absent: Sequence[int] = (),
) -> tuple[Records, Fixed]:
    fleet = Fleet(H100, max(replicas) + 1)
    router = Fixed(replicas)
    workload = Workload("test", calls, len(calls), changes, frozenset(absent))
    return Simulation(fleet, [router], seed=1).run(workload), router


def test_one_request_takes_its_prefill_and_its_decodes() -> None:
    records, router = run([Call(5.0, range(1, 63), 1000, 3)], [0])
    first = H100.prefill_s([Chunk(1000, 0)])
    decodes = sum(H100.decode_run(1, context).first_s for context in (1000, 1001))
    assert records.sent_s.tolist() == [5.0]
    assert records.ttft_s.tolist() == [pytest.approx(first)]
    assert records.ended_s.tolist() == [pytest.approx(5.0 + first + decodes)]
    assert router.heard == [("choose", 0), ("first", 0), ("ended", 0)]


def test_requests_of_one_moment_start_in_one_step() -> None:
    records, _ = run([Call(1.0, range(1, 65), 1024, 1) for _ in range(3)], [0, 0, 0])
    step = H100.prefill_s([Chunk(1024, 0), Chunk(16, 1008), Chunk(16, 1008)])
    assert records.ttft_s.tolist() == [pytest.approx(step)] * 3
    assert records.cached_tokens.tolist() == [0, 1008, 1008]


def test_a_request_waits_for_the_iteration_under_way_only() -> None:
    records, _ = run([Call(0.0, (), 1000, 500), Call(1.0, (), 1000, 1)], [0, 0])
    prefill = H100.prefill_s([Chunk(1000, 0)])
    assert prefill < records.ttft_s[1] < prefill + 2 * 0.011
    assert records.ended_s[1] < records.ended_s[0]


def test_replicas_do_not_wait_for_each_other() -> None:
    records, _ = run([Call(0.0, (), 8000, 1), Call(0.0, (), 8000, 1)], [0, 1])
    assert records.ttft_s[0] == records.ttft_s[1] == pytest.approx(H100.prefill_s([Chunk(8000, 0)]))
    assert records.replica.tolist() == [0, 1]


def test_a_next_turn_comes_after_the_answer_and_a_pause() -> None:
    second = Call(0.0, range(1, 126), 2000, 1)
    first = Call(3.0, range(1, 64), 1000, 10, then=(2.5, second))
    records, _ = run([first], [0, 0])
    assert records.sent_s[1] == pytest.approx(records.ended_s[0] + 2.5)
    # All of the first turn but the last token of its answer, which was never computed.
    assert records.cached_tokens[1] == 1008


def test_replicas_come_and_go() -> None:
    calls = [Call(at_s, range(1, 65), 1024, 1) for at_s in (0.0, 2.0, 4.0, 6.0)]
    changes = [Change(1.0, 1, True), Change(3.0, 1, False), Change(5.0, 1, True)]
    records, router = run(calls, [0, 1, 0, 1], changes=changes, absent=[1])
    assert router.members == [[0], [0, 1], [0], [0, 1]]
    assert ("left", 1) in router.heard
    # Who comes back has an empty cache.
    assert records.cached_tokens.tolist() == [0, 0, 1008, 0]
