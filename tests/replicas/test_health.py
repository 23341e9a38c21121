"""Ejection, warming up, and what routers tell each other of it; in a time of the tests' own."""

from collections.abc import Mapping

import pytest

from extproc.affinity import MemoryStore
from extproc.replicas.faults import Fault
from extproc.replicas.health import Ejection, Fitness, Health, HealthPolicy
from extproc.routing import Standing

A, B, C, D = (f"10.0.0.{number}:8000" for number in range(1, 5))
POOL = (A, B, C, D)
POLICY = HealthPolicy(eject_after=3, eject_s=10, slow_start_s=30, hang_after_s=60)


class Times:
    """One clock for the board and for all routers."""

    def __init__(self) -> None:
        self.now_s = 1_000_000.0
        self.store = MemoryStore(clock=lambda: int(self.now_s * 1_000_000))
        self.ejected: list[tuple[str, Ejection]] = []

    def health(self, policy: HealthPolicy = POLICY) -> Health:
        made = Health(
            "pool",
            self.store,
            ejected=lambda address, ejection: self.ejected.append((address, ejection)),
            clock=lambda: self.now_s,
        )
        made.policy = policy
        return made


@pytest.fixture
def times() -> Times:
    return Times()


@pytest.fixture
def health(times: Times) -> Health:
    made = times.health()
    made.fit(POOL)
    return made


def fail(health: Health, address: str, times: int = 3, fault: Fault = Fault.ERROR) -> None:
    for _ in range(times):
        health.failed(address, fault)


def weights(health: Health, addresses: tuple[str, ...] = POOL) -> Mapping[str, Standing]:
    return health.fit(addresses).standings


def test_who_answers_is_fit(health: Health) -> None:
    assert health.fit(POOL) == (POOL, {})
    fail(health, A, 2)
    health.answered(A, 0)
    fail(health, A, 2)
    assert health.fit(POOL) == (POOL, {})


def test_failures_in_a_row_eject(health: Health, times: Times) -> None:
    fail(health, A)
    assert health.fit(POOL) == ((B, C, D), {})
    assert times.ejected == [(A, Ejection(Fault.ERROR, 1))]
    assert health.states(POOL)[A] == (Fitness.EJECTED, 1000, Ejection(Fault.ERROR, 1))


def test_an_ejection_ends_and_the_replica_warms_up(health: Health, times: Times) -> None:
    fail(health, A)
    times.now_s += 9.9
    assert health.fit(POOL).addresses == (B, C, D)
    times.now_s += 0.1
    assert health.fit(POOL) == (POOL, {A: Standing(100)})
    times.now_s += 15
    assert health.fit(POOL) == (POOL, {A: Standing(500)})
    assert health.states(POOL)[A].fitness is Fitness.WARMING
    times.now_s += 15
    assert health.fit(POOL) == (POOL, {})
    assert health.states(POOL)[A] == (Fitness.HEALTHY, 1000, None)


def test_while_it_warms_up_one_failure_ejects_for_twice_as_long(
    health: Health, times: Times
) -> None:
    fail(health, A)
    for strikes, lasts_s in [(2, 20), (3, 40), (4, 80), (5, 160), (6, 320), (7, 320)]:
        times.now_s += 400  # over, but health heard so only now: no time in health has passed
        assert A in health.fit(POOL).addresses
        fail(health, A, 1)
        assert times.ejected[-1] == (A, Ejection(Fault.ERROR, strikes))
        times.now_s += lasts_s - 0.1
        assert A not in health.fit(POOL).addresses
    assert len(times.ejected) == 7


def test_time_in_health_takes_doublings_back(health: Health, times: Times) -> None:
    for _ in range(3):
        fail(health, A)
        times.now_s += 400
        health.fit(POOL)
    assert times.ejected[-1] == (A, Ejection(Fault.ERROR, 3))
    times.now_s += 20
    health.fit(POOL)
    fail(health, A)
    assert times.ejected[-1] == (A, Ejection(Fault.ERROR, 2))
    times.now_s += 400
    health.fit(POOL)
    times.now_s += 100
    health.fit(POOL)
    fail(health, A)
    assert times.ejected[-1] == (A, Ejection(Fault.ERROR, 1))


def test_never_more_than_half_is_ejected(health: Health, times: Times) -> None:
    for address in (C, A, D):
        fail(health, address)
    fit = health.fit(POOL)
    assert fit == ((B, D), {D: Standing(100)})
    assert health.states(POOL)[D] == (Fitness.NEEDED, 100, Ejection(Fault.ERROR, 1))
    fail(health, B)
    assert health.fit(POOL).addresses == (C, D)
    times.now_s += 10
    assert health.fit(POOL).addresses == POOL


def test_the_only_replica_is_never_ejected(times: Times) -> None:
    health = times.health()
    health.fit((A,))
    fail(health, A, 50)
    assert health.fit((A,)).addresses == (A,)
    assert health.states([A])[A].fitness is Fitness.NEEDED


def test_of_the_bad_the_least_bad_are_kept(health: Health, times: Times) -> None:
    fail(health, D)
    times.now_s += 10
    health.fit(POOL)
    for address in (D, A, B):
        fail(health, address)
    assert health.fit(POOL).addresses == (B, C)


def test_an_answer_to_a_later_request_ends_an_ejection(health: Health, times: Times) -> None:
    asked_before_s = times.now_s
    times.now_s += 1
    fail(health, A)
    health.answered(A, asked_before_s)
    assert A not in health.fit(POOL).addresses
    times.now_s += 1
    health.answered(A, times.now_s)
    assert health.fit(POOL) == (POOL, {A: Standing(100)})


def grown_up(health: Health, times: Times) -> None:
    """A pool that has been in use for longer than its replicas warm up."""
    for _ in range(POLICY.slow_start_s):
        times.now_s += 1
        health.fit(POOL)


def test_new_replicas_warm_up(health: Health, times: Times) -> None:
    grown_up(health, times)
    assert weights(health, (*POOL, "10.0.0.9:80")) == {"10.0.0.9:80": Standing(100)}
    times.now_s += 12
    assert weights(health, (*POOL, "10.0.0.9:80")) == {"10.0.0.9:80": Standing(400)}


def test_a_pool_that_is_new_or_was_idle_does_not(health: Health, times: Times) -> None:
    assert weights(health) == {}
    times.now_s += 10_000
    assert weights(health) == {}


def test_who_is_found_one_by_one_is_no_colder_than_the_first(times: Times) -> None:
    health = times.health()
    found: tuple[str, ...] = ()
    for address in POOL:
        found = (*found, address)
        assert weights(health, found) == {}
        times.now_s += 7
    times.now_s += 2
    health.fit(found)
    assert weights(health, (*found, "10.0.0.9:80")) == {"10.0.0.9:80": Standing(100)}


def test_a_router_that_starts_hears_of_ejections(health: Health, times: Times) -> None:
    fail(health, A)
    other = times.health()
    assert other.fit(POOL) == ((B, C, D), {})
    times.now_s += 10
    assert other.fit(POOL) == (POOL, {A: Standing(100)})
    fail(other, A, 1)
    assert times.ejected[-1] == (A, Ejection(Fault.ERROR, 2)), "strikes are shared"
    assert health.fit(POOL).addresses == (B, C, D)


def test_a_replica_hangs_that_answers_nothing_while_others_answer(
    health: Health, times: Times
) -> None:
    health.asked("r1", A)
    health.asked("r2", B)
    times.now_s += 59
    health.answered(B, 0)
    health.ended("r2")
    assert health.fit(POOL).addresses == POOL
    times.now_s += 1
    assert health.fit(POOL).addresses == (B, C, D)
    assert times.ejected == [(A, Ejection(Fault.HANG, 1))]
    health.answered(A, 0)
    assert A in health.fit(POOL).addresses, "it did not hang, it took long"


def test_where_nobody_answers_nobody_hangs(health: Health, times: Times) -> None:
    health.asked("r1", A)
    times.now_s += 600
    assert health.fit(POOL).addresses == POOL


def test_long_requests_beside_answers_are_no_hang(health: Health, times: Times) -> None:
    health.asked("long", A)
    times.now_s += 50
    health.asked("short", A)
    health.answered(A, times.now_s)
    health.ended("short")
    times.now_s += 50
    health.answered(B, 0)
    assert health.fit(POOL).addresses == POOL


def test_a_request_that_is_over_hangs_no_more(health: Health, times: Times) -> None:
    health.asked("left", A)
    health.ended("left")
    health.ended("left")
    times.now_s += 60
    health.answered(B, 0)
    assert health.fit(POOL).addresses == POOL


def test_checks_eject_until_they_pass(health: Health, times: Times) -> None:
    for _ in range(10):
        health.checked(A, passed=False, ttl_s=15)
        times.now_s += 14
        assert A not in health.fit(POOL).addresses
    health.checked(A, passed=True, ttl_s=15)
    assert health.fit(POOL) == (POOL, {A: Standing(100)})


@pytest.mark.parametrize(
    ("fault", "cured"),
    [
        (Fault.REFUSED, True),
        (Fault.RESET, True),
        (Fault.RETRIED, True),
        (Fault.ERROR, False),
        (Fault.TIMEOUT, False),
    ],
)
def test_a_passed_check_ends_only_what_it_can_judge(
    health: Health, fault: Fault, cured: bool
) -> None:
    fail(health, A, fault=fault)
    health.checked(A, passed=True, ttl_s=15)
    assert (A in health.fit(POOL).addresses) is cured


def test_zero_turns_each_part_off(times: Times) -> None:
    health = times.health(HealthPolicy(eject_after=0, slow_start_s=0, hang_after_s=0))
    health.fit(POOL)
    fail(health, A, 50)
    health.asked("r", B)
    times.now_s += 6000
    health.answered(C, 0)
    assert health.fit((*POOL, "10.0.0.9:80")) == ((*POOL, "10.0.0.9:80"), {})


def test_what_others_wrote_on_the_board_is_no_harm(health: Health, times: Times) -> None:
    for topic, text in [
        ("ejected/" + A, "no number"),
        ("ejected/" + B, "3"),
        ("ejected/" + C, "² error"),
        ("engine/" + D, "1 error"),
        ("ejected/nobody", "1 error"),
    ]:
        times.store.post("pool", topic, text, ttl_s=60)
    assert health.fit(POOL).addresses == POOL


def test_nothing_is_kept_of_who_is_gone(health: Health, times: Times) -> None:
    for number in range(200):
        health.fit((A, f"10.1.0.{number}:80"))
        times.now_s += 5
    assert len(health._records) <= 10
    assert len(health._warming) <= 10
