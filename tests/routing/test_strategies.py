"""Each strategy's choice, on candidates whose right answer is plain."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extproc.routing import Candidate, Policy, Question, Reason, Strategy, choose


def ask(
    strategy: Strategy,
    *candidates: tuple[int, int, int],
    total: int | None = 1000,
    sticky: int | None = None,
    turn: int = 0,
    matched_only: bool = False,
    **numbers: int,
) -> tuple[tuple[int, ...], Reason]:
    question = Question(
        Policy(strategy, **numbers), [Candidate(*each) for each in candidates], total, sticky, turn
    )
    choice = choose(question, matched_only=matched_only)
    return choice.ranked, choice.reason


def test_kv_aware_prefers_what_is_cached() -> None:
    assert ask(Strategy.KV_AWARE, (0, 0, 0), (0, 0, 800), (0, 0, 400)) == (
        (1, 2, 0),
        Reason.MATCHED,
    )


def test_kv_aware_weighs_the_wait_against_the_cache() -> None:
    # 600 uncached tokens more cost 900; they are worth a wait of 899, not of 901.
    assert ask(Strategy.KV_AWARE, (0, 899, 600), (0, 0, 0))[0][0] == 0
    assert ask(Strategy.KV_AWARE, (0, 901, 600), (0, 0, 0)) == ((1, 0), Reason.SPILLED)
    # At a tie the earlier candidate wins.
    assert ask(Strategy.KV_AWARE, (0, 900, 600), (0, 0, 0))[0][0] == 0
    assert ask(Strategy.KV_AWARE, (0, 0, 0), (0, 900, 600))[0][0] == 0


def test_kv_aware_counts_decoding_requests() -> None:
    assert ask(Strategy.KV_AWARE, (3, 0, 500), (0, 0, 0))[0][0] == 1  # 768 against 750
    assert ask(Strategy.KV_AWARE, (3, 0, 500), (0, 0, 0), decode_tokens=249)[0][0] == 0


def test_kv_aware_without_a_prompt_goes_by_load() -> None:
    assert ask(Strategy.KV_AWARE, (2, 0, 0), (1, 0, 0), (1, 9, 0), total=None) == (
        (1, 2, 0),
        Reason.NO_PROMPT,
    )


def test_cold_prompts_go_to_the_first_of_the_least_loaded() -> None:
    assert ask(Strategy.KV_AWARE, (1, 0, 0), (0, 0, 0), (0, 0, 0)) == ((1, 2, 0), Reason.COLD)


def test_prefix_aware_keeps_to_its_home_until_that_is_full() -> None:
    free = [(1, 0, 0), (3, 0, 0), (0, 0, 0)]
    assert ask(Strategy.PREFIX_AWARE, *free, sticky=1, threshold=4) == ((1, 0, 2), Reason.MATCHED)
    full = [(1, 0, 0), (4, 0, 0), (0, 0, 0)]
    # The next in order below the threshold, not the least busy one.
    assert ask(Strategy.PREFIX_AWARE, *full, sticky=1, threshold=4) == ((0, 2, 1), Reason.SPILLED)
    assert ask(Strategy.PREFIX_AWARE, (9, 0, 0), (7, 0, 0), (8, 0, 0), sticky=0, threshold=4) == (
        (1, 2, 0),
        Reason.SPILLED,
    )
    assert ask(Strategy.PREFIX_AWARE, *free, threshold=4) == ((0, 1, 2), Reason.COLD)


def test_prefix_aware_spills_without_moving_the_home() -> None:
    question = Question(
        Policy(Strategy.PREFIX_AWARE, threshold=1),
        [Candidate(1, 0, 0), Candidate(0, 0, 0)],
        100,
        None,
    )
    choice = choose(question)
    assert choice.ranked[0] == 1
    assert choice.home == 0


def test_baselines() -> None:
    three = [(2, 0, 900), (1, 0, 0), (1, 0, 0)]
    assert ask(Strategy.LEAST_OUTSTANDING_REQUESTS, *three) == ((1, 2, 0), Reason.BASELINE)
    assert ask(Strategy.RANDOM, *three) == ((0, 1, 2), Reason.BASELINE)
    assert ask(Strategy.ROUND_ROBIN, *three, turn=4) == ((1, 2, 0), Reason.BASELINE)


@pytest.mark.parametrize("strategy", Strategy)
def test_matched_only_leaves_strangers_alone(strategy: Strategy) -> None:
    assert ask(strategy, (0, 0, 0), (0, 0, 0), matched_only=True) == ((), Reason.OBSERVING)


def test_matched_only_takes_friends() -> None:
    assert ask(Strategy.KV_AWARE, (0, 0, 0), (0, 0, 5), matched_only=True)[0] == (1, 0)
    assert ask(Strategy.PREFIX_AWARE, (0, 0, 0), (0, 0, 0), sticky=1, matched_only=True)[0] == (
        1,
        0,
    )


candidates = st.lists(
    st.builds(
        Candidate,
        in_flight=st.integers(0, 100),
        pending=st.integers(0, 100_000),
        matched=st.integers(0, 1000),
    ),
    min_size=1,
    max_size=9,
)


@given(strategy=st.sampled_from(Strategy), candidates=candidates, data=st.data())
def test_ranks_are_distinct_candidates(
    strategy: Strategy, candidates: list[Candidate], data: st.DataObject
) -> None:
    sticky = data.draw(st.one_of(st.none(), st.integers(0, len(candidates) - 1)))
    total = data.draw(st.one_of(st.none(), st.integers(1000, 2000)))
    choice = choose(Question(Policy(strategy), candidates, total, sticky, turn=7))
    assert len(choice.ranked) == len(set(choice.ranked)) == min(3, len(candidates))
    assert all(0 <= each < len(candidates) for each in choice.ranked)


@given(candidates=candidates, extra=st.integers(1, 1000))
def test_kv_aware_never_prefers_a_busier_twin(candidates: list[Candidate], extra: int) -> None:
    best = choose(Question(Policy(), candidates, 1000)).ranked[0]
    twin = candidates[best]
    worse = Candidate(twin.in_flight + extra, twin.pending + extra, twin.matched)
    assert choose(Question(Policy(), [worse, *candidates], 1000)).ranked[0] == best + 1
