from hypothesis import given
from hypothesis import strategies as st

from extproc.routing import Apart, Familiarity, Policy, Question, Reason, choose


def question(
    apart: Apart | None, *, pending: tuple[int, ...] = (0, 0), matched: tuple[int, ...] = (0, 0)
) -> Question:
    return Question(Policy(), (0,) * len(pending), pending, matched, 3000, apart=apart)


def test_a_cold_prompt_goes_to_its_home() -> None:
    assert choose(question(Apart.of(1, 250, 3))).ranked == (1, 0)
    assert choose(question(None)).ranked == (0, 1)


def test_where_prompts_share_nothing_homes_do_not_count() -> None:
    familiarity = Familiarity()
    for _ in range(300):
        familiarity.take_in(0, 1000)
    apart = Apart.of(1, familiarity.share, 3)
    assert apart.pull == 0
    assert choose(question(apart, pending=(0, 1))).ranked == (0, 1)


def test_a_quarter_that_was_known_is_enough_for_the_whole_pull() -> None:
    familiarity = Familiarity()
    before = Apart.of(0, familiarity.share, 2).pull
    for _ in range(300):
        familiarity.take_in(900, 1000)
    assert Apart.of(0, familiarity.share, 2).pull == before == 666


def test_among_more_routers_the_load_that_one_sees_counts_for_more() -> None:
    """What the cache saves is worth 7,500 queued tokens; a busy replica is left the sooner."""
    queued = (0, 4000)
    matched = (0, 3000)
    assert choose(question(Apart.of(0, 0, 2), pending=queued, matched=matched)).ranked[0] == 1
    assert choose(question(Apart.of(0, 0, 9), pending=queued, matched=matched)).ranked[0] == 0


@given(
    known=st.lists(st.integers(0, 1000), max_size=50),
    routers=st.integers(2, 10_000),
    home=st.integers(0, 3),
)
def test_what_is_made_up_for_is_bounded(known: list[int], routers: int, home: int) -> None:
    familiarity = Familiarity()
    for tokens in known:
        familiarity.take_in(tokens, 1000)
    familiarity.take_in(0, 0)
    apart = Apart.of(home, familiarity.share, routers)
    assert apart.home == home
    assert 0 <= apart.pull <= 666
    assert apart.load**2 <= 1_000_000 * routers < (apart.load + 1) ** 2


def test_the_reason_is_that_of_the_choice() -> None:
    apart = Apart.of(1, 250, 3)
    assert choose(question(apart)).reason is Reason.COLD
    assert choose(question(apart, matched=(0, 2000))).reason is Reason.MATCHED
