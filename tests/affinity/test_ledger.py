"""One replica's account: drains at the rate, never below zero, empty when all is over."""

from hypothesis import given
from hypothesis import strategies as st

from extproc.affinity.ledger import Account


def test_pending_tokens_drain_at_the_rate() -> None:
    account = Account(clock_us=1_000_000)
    end = account.take(500)
    account.drain(1_020_000, 10_000)
    assert (account.pending, account.drained) == (300, 200)
    account.give_back(500, end)
    assert (account.in_flight, account.pending) == (0, 0)


def test_many_short_steps_drain_as_much_as_one_long_one() -> None:
    often, once = Account(), Account()
    for account in (often, once):
        account.take(100_000)
    for now in range(1, 1001):
        often.drain(1000 * now, 1_700)
    once.drain(1_000_000, 1_700)
    assert once.pending == 100_000 - 1_700
    assert abs(often.pending - once.pending) <= 2


def test_a_clock_that_steps_back_drains_nothing() -> None:
    account = Account(clock_us=5_000_000)
    account.take(10)
    account.drain(1_000_000, 1_000)
    assert account.pending == 10


def test_a_release_takes_back_only_its_own_tokens() -> None:
    account = Account()
    first, second = account.take(100), account.take(1000)
    account.give_back(1000, second)
    assert account.pending == 100
    account.give_back(100, first)
    assert account.pending == 0


def test_what_a_cache_took_in_counts_in_blocks() -> None:
    account = Account(taken=(1 << 32) - 2)
    account.take(0)
    assert account.taken == (1 << 32) - 2
    account.take(17)
    assert account.taken == 0
    account.give_back(*[account.take(1)] * 2)
    assert account.taken == 1


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("take"), st.integers(0, 5000)),
            st.tuples(st.just("give"), st.integers(0, 100)),
            st.tuples(st.just("wait"), st.integers(0, 3000)),
        ),
        max_size=60,
    ),
    st.integers(1, 50_000),
)
def test_never_negative_and_empty_at_the_end(history: list[tuple[str, int]], rate: int) -> None:
    account, now, open_ = Account(), 0, []
    for what, number in history:
        if what == "wait":
            now += 1000 * number
        account.drain(now, rate)
        if what == "take":
            open_.append((number, account.take(number)))
        elif what == "give" and open_:
            account.give_back(*open_.pop(number % len(open_)))
        assert account.in_flight == len(open_)
        assert account.pending >= 0
    for tokens, end in open_:
        account.drain(now, rate)
        account.give_back(tokens, end)
    assert (account.in_flight, account.pending) == (0, 0)
