import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extproc.replicas import Candidates, Observed, Service
from extproc.replicas.observation import EXPLORED, Observation, is_gone

A, B, C = "10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80"


class Members:
    """The store's part of it, for one router."""

    def __init__(self) -> None:
        self.pools: dict[str, set[str]] = {}

    def join(self, pool: str, replicas: list[str]) -> None:
        self.pools.setdefault(pool, set()).update(replicas)

    def leave(self, pool: str, replica: str) -> None:
        self.pools.setdefault(pool, set()).discard(replica)

    def members(self, pool: str) -> list[str]:
        return sorted(self.pools.get(pool, ()))


def observed(*, roll: float = 1.0) -> tuple[Observed, Members]:
    members = Members()
    return Observed("llm", members, roll=lambda: roll), members


def envoys(address: str) -> Service:
    return Service(address, 1, "", answered=True)


@pytest.mark.parametrize(("known", "picks"), [(1, 32), (4, 32), (5, 40), (16, 128)])
def test_a_pool_is_learned_after_enough_picks_that_find_nobody_new(known: int, picks: int) -> None:
    observation = Observation()
    for _ in range(picks - 1):
        observation.picked(A, {A})
    assert not observation.learned(known)

    observation.picked(A, {A})

    assert observation.learned(known)


def test_somebody_new_starts_the_count_again() -> None:
    observation = Observation()
    for _ in range(32):
        observation.picked(A, {A})

    observation.picked(B, {A})

    assert not observation.learned(2)


@pytest.mark.parametrize(
    ("service", "gone"),
    [
        (Service(B, 1, A, answered=True), True),
        (Service(A, 1, A, answered=True), False),
        (Service(B, 2, A, answered=True), False),
        (Service(B, 0, A, answered=True), False),
        (Service(B, 1, "", answered=True), False),
    ],
)
def test_only_a_first_attempt_elsewhere_tells_that_a_choice_is_gone(
    service: Service, gone: bool
) -> None:
    assert is_gone(service) is gone


def test_an_unknown_pool_is_envoys() -> None:
    source, _ = observed()

    assert source.candidates() == Candidates((), matched_only=True)


def test_who_serves_becomes_a_member() -> None:
    source, members = observed()

    source.served(envoys(A))
    source.served(Service(B, 2, A, answered=True))

    assert members.members("llm") == [A, B]
    assert source.candidates() == Candidates((A, B), matched_only=True)


def test_who_only_refused_does_not() -> None:
    source, members = observed()

    source.served(Service(A, 1, "", answered=False))

    assert members.members("llm") == []


def test_a_choice_that_envoy_passed_over_is_dropped() -> None:
    source, members = observed()
    members.join("llm", [A, B])

    source.served(Service(B, 1, A, answered=True))

    assert members.members("llm") == [B]


def test_a_choice_that_failed_stays() -> None:
    source, members = observed()
    members.join("llm", [A, B])

    source.served(Service(B, 2, A, answered=True))

    assert members.members("llm") == [A, B]


def test_a_learned_pool_takes_cold_requests_but_for_a_few() -> None:
    source, members = observed(roll=EXPLORED)
    members.join("llm", [A, B])
    for _ in range(32):
        source.served(envoys(A))
    assert source.candidates() == Candidates((A, B), matched_only=False)

    source, members = observed(roll=EXPLORED / 2)
    members.join("llm", [A, B])
    for _ in range(32):
        source.served(envoys(A))
    assert source.candidates() == Candidates((A, B), matched_only=True)


def test_our_own_choices_teach_nothing_about_others() -> None:
    source, members = observed()
    members.join("llm", [A])

    for _ in range(100):
        source.served(Service(A, 1, A, answered=True))

    assert source.candidates() == Candidates((A,), matched_only=True)


def test_members_of_other_routers_are_candidates() -> None:
    members = Members()
    first = Observed("llm", members, roll=lambda: 1.0)
    second = Observed("llm", members, roll=lambda: 1.0)

    first.served(envoys(C))

    assert second.candidates() == Candidates((C,), matched_only=True)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.builds(
            Service,
            st.sampled_from([A, B, C]),
            st.integers(0, 3),
            st.sampled_from(["", A, B, C]),
            st.booleans(),
        ),
        max_size=60,
    )
)
def test_whoever_answered_last_is_a_member(services: list[Service]) -> None:
    source, members = observed()
    for service in services:
        source.served(service)
        if service.answered:
            assert service.address in members.members("llm")
        if is_gone(service):
            assert service.chosen not in members.members("llm")
    assert set(source.candidates().addresses) <= {each.address for each in services}
