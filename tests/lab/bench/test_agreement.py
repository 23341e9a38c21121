"""What the real stack and the simulator are compared on is the same."""

from collections import Counter

import pytest

from extproc.lab import workload
from extproc.lab.bench.agreement import Agreement, Figures
from extproc.lab.bench.replay import Replay, as_calls
from extproc.lab.replica.latency import DEFAULT_PROFILE, PROFILES
from extproc.lab.simulator import trial
from extproc.lab.simulator.fleet import Fleet
from extproc.lab.simulator.loop import Simulation


@pytest.mark.parametrize(
    "work",
    [
        workload.shared_prefixes(seed=1, groups=4, requests=20, rate=5, prefix_tokens=200),
        workload.sharegpt_like(seed=2, requests=30, rate=5),
    ],
    ids=["shared prefixes", "chats"],
)
def test_both_send_the_same_prompts(work: workload.Workload) -> None:
    sent = as_calls(work)
    assert sent.requests == work.requests
    assert trial.infinite_cache_hit_rate(sent) == pytest.approx(
        workload.infinite_cache_hit_rate(work), abs=0.001
    )
    queries = [lookup.tokens for lookup in workload.infinite_cache(work)]
    calls = []
    for call in as_calls(work).calls:
        calls.append(call.prompt_tokens)
        while call.then is not None:
            call = call.then[1]  # noqa: PLW2901  # along the conversation
            calls.append(call.prompt_tokens)
    assert sorted(calls) == sorted(queries)


def test_conversations_begin_and_pause_as_the_client_does() -> None:
    work = workload.chats(seed=1, conversations=3, turns=2, rate=2, think_s=0.7, output_tokens=9)
    first = list(as_calls(work).calls)
    assert [call.at_s for call in first] == [chat.at_s for chat in work.conversations]
    for call in first:
        assert call.then is not None
        pause, turn = call.then
        assert pause == 0.7
        assert turn.output_tokens == 9
        assert turn.prompt_tokens > call.prompt_tokens


@pytest.mark.parametrize(
    ("hits", "p50", "near"),
    [(0.80, 0.100, True), (0.821, 0.100, False), (0.80, 0.111, False), (0.781, 0.091, True)],
)
def test_figures_agree(hits: float, p50: float, near: bool) -> None:
    assert Figures(hits, p50).near(Figures(0.80, 0.100)) is near


@pytest.mark.parametrize(
    ("strategy", "as_served", "simulated", "holds"),
    [
        ("kv_aware", 0.80, 0.80, True),
        ("kv_aware", 0.80, 0.75, False),
        ("kv_aware", 0.75, 0.80, False),
        ("random", 0.80, 0.75, True),
        ("random", 0.75, 0.80, False),
    ],
)
def test_a_choice_by_chance_is_compared_as_it_fell(
    strategy: str, as_served: float, simulated: float, holds: bool
) -> None:
    figures = [Figures(hits, 0.1) for hits in (0.80, as_served, simulated)]
    assert Agreement("chats", strategy, *figures).holds is holds


def test_requests_go_where_they_went() -> None:
    work = workload.chats(seed=1, conversations=6, turns=3, rate=2, think_s=0.7, output_tokens=9)
    served = {(number, turn): (number + turn) % 3 for number in range(6) for turn in range(3)}
    router = Replay(served)
    fleet = Fleet(PROFILES[DEFAULT_PROFILE], 3, 0)
    records = Simulation(fleet, [router], seed=0).run(as_calls(work, router.know))
    assert Counter(records.replica) == Counter(served.values())
    # A turn is never where its conversation was before: only what all have in common is found.
    moved = sum(records.cached_tokens)
    router = Replay({(number, turn): number % 3 for number, turn in served})
    fleet = Fleet(PROFILES[DEFAULT_PROFILE], 3, 0)
    stayed = Simulation(fleet, [router], seed=0).run(as_calls(work, router.know))
    assert sum(stayed.cached_tokens) > moved
