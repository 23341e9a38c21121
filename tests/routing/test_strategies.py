"""Each strategy's choice, on candidates whose right answer is plain."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extproc.routing import Policy, Question, Reason, Strategy, choose

Candidate = tuple[int, int, int]
"""In flight, pending, matched."""


def question(
    policy: Policy, candidates: list[Candidate], total: int | None, sticky: int | None = None
) -> Question:
    in_flight, pending, matched = zip(*candidates, strict=True)
    return Question(policy, in_flight, pending, matched, total, sticky)


def ask(
    strategy: Strategy,
    *candidates: Candidate,
    total: int | None = 1000,
    sticky: int | None = None,
    turn: int = 0,
    matched_only: bool = False,
    session: int | None = None,
    limit: int = 0,
    **numbers: int,
) -> tuple[tuple[int, ...], Reason]:
    asked = question(Policy(strategy, **numbers), list(candidates), total, sticky)
    asked = asked._replace(turn=turn, session=session, limit=limit)
    choice = choose(asked, matched_only=matched_only)
    return choice.ranked, choice.reason


def test_kv_aware_prefers_what_is_cached() -> None:
    assert ask(Strategy.KV_AWARE, (0, 0, 0), (0, 0, 800), (0, 0, 400)) == (
        (1, 2, 0),
        Reason.MATCHED,
    )


def test_kv_aware_weighs_the_wait_against_the_cache() -> None:
    # 600 uncached tokens more cost 1,500; they are worth a wait of 1,499, not of 1,501.
    assert ask(Strategy.KV_AWARE, (0, 1499, 600), (0, 0, 0))[0][0] == 0
    assert ask(Strategy.KV_AWARE, (0, 1501, 600), (0, 0, 0)) == ((1, 0), Reason.SPILLED)
    # At a tie the earlier candidate wins.
    assert ask(Strategy.KV_AWARE, (0, 1500, 600), (0, 0, 0))[0][0] == 0
    assert ask(Strategy.KV_AWARE, (0, 0, 0), (0, 1500, 600))[0][0] == 0


def test_kv_aware_counts_decoding_requests() -> None:
    assert (
        ask(Strategy.KV_AWARE, (3, 0, 500), (0, 0, 0), decode_tokens=417)[0][0] == 1
    )  # 1251 > 1250
    assert ask(Strategy.KV_AWARE, (3, 0, 500), (0, 0, 0), decode_tokens=416)[0][0] == 0


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
    choice = choose(
        question(Policy(Strategy.PREFIX_AWARE, threshold=1), [(1, 0, 0), (0, 0, 0)], 100)
    )
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


def test_a_session_is_worth_so_many_tokens() -> None:
    strategy, known = Strategy.KV_AWARE, (0, 0, 0)
    # 1,024 tokens, or 16 requests of 64, or two fifths of that in matched tokens.
    assert ask(strategy, known, (0, 1023, 0), session=1) == ((1, 0), Reason.SESSION)
    assert ask(strategy, known, (0, 1025, 0), session=1) == ((0, 1), Reason.COLD)
    assert ask(strategy, known, (15, 0, 0), session=1)[0] == (1, 0)
    assert ask(strategy, known, (17, 0, 0), session=1)[0] == (0, 1)
    assert ask(strategy, (0, 0, 400), known, session=1) == ((1, 0), Reason.SESSION)
    assert ask(strategy, (0, 0, 420), known, session=1) == ((0, 1), Reason.MATCHED)
    assert ask(strategy, known, (0, 0, 500), (0, 0, 900), session=1) == ((1, 2, 0), Reason.SESSION)
    assert ask(strategy, known, (0, 0, 500), session=1) == ((1, 0), Reason.MATCHED)


def test_a_session_counts_without_a_prompt_and_while_a_pool_is_learned() -> None:
    two = [(0, 0, 0), (3, 0, 0)]
    assert ask(Strategy.KV_AWARE, *two, total=None, session=1) == ((1, 0), Reason.SESSION)
    assert ask(Strategy.KV_AWARE, *two, session=1, matched_only=True)[0] == (1, 0)


@pytest.mark.parametrize("strategy", Strategy)
def test_where_all_are_full_nobody_is_chosen(strategy: Strategy) -> None:
    full = [(4, 0, 1000), (5, 0, 0), (4, 0, 0)]
    assert ask(strategy, *full, limit=4) == ((), Reason.SHED)
    assert ask(strategy, *full, limit=4, matched_only=True) == ((), Reason.SHED)
    assert len(ask(strategy, *full, limit=5)[0]) == 2


def test_the_full_are_passed_over() -> None:
    full = [(4, 0, 1000), (3, 0, 0), (4, 0, 0), (2, 0, 0)]
    assert ask(Strategy.KV_AWARE, *full, limit=4) == ((3, 1), Reason.SPILLED)
    assert ask(Strategy.PREFIX_AWARE, *full, sticky=0, limit=4) == ((1, 3), Reason.SPILLED)
    assert ask(Strategy.LEAST_OUTSTANDING_REQUESTS, *full, limit=4)[0] == (3, 1)
    assert ask(Strategy.RANDOM, *full, limit=4)[0] == (1, 3)
    assert ask(Strategy.ROUND_ROBIN, *full, turn=3, limit=4)[0] == (3, 1)


candidates = st.lists(
    st.tuples(st.integers(0, 100), st.integers(0, 100_000), st.integers(0, 1000)),
    min_size=1,
    max_size=9,
)


@given(strategy=st.sampled_from(Strategy), candidates=candidates, data=st.data())
def test_ranks_are_distinct_candidates(
    strategy: Strategy, candidates: list[Candidate], data: st.DataObject
) -> None:
    sticky = data.draw(st.one_of(st.none(), st.integers(0, len(candidates) - 1)))
    total = data.draw(st.one_of(st.none(), st.integers(1000, 2000)))
    limit = data.draw(st.sampled_from([0, 1, 50]))
    asked = question(Policy(strategy), candidates, total, sticky)._replace(turn=7, limit=limit)
    choice = choose(asked)
    room = {at for at, (n, _, _) in enumerate(candidates) if not limit or n < limit}
    assert len(choice.ranked) == len(set(choice.ranked)) == min(3, len(room))
    assert set(choice.ranked) <= room


@given(candidates=candidates, extra=st.integers(1, 1000))
def test_kv_aware_never_prefers_a_busier_twin(candidates: list[Candidate], extra: int) -> None:
    best = choose(question(Policy(), candidates, 1000)).ranked[0]
    in_flight, pending, matched = candidates[best]
    worse = (in_flight + extra, pending + extra, matched)
    assert choose(question(Policy(), [worse, *candidates], 1000)).ranked[0] == best + 1
