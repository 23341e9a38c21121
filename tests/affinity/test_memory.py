"""What the memory store takes a replica to hold. That Redis agrees is ``test_agreement``'s."""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count

from extproc.affinity import MemoryStore, Reservation
from extproc.prompt.model import Fingerprint
from extproc.routing import Decision, Policy, Reason
from tests.affinity.test_agreement import fingerprint

REPLICAS = ("10.0.0.1:8000", "10.0.0.2:8000")


@dataclass
class Clock:
    now_us: int = 1_800_000_000_000_000

    def __call__(self) -> int:
        return self.now_us

    def wait(self, seconds: int) -> None:
        self.now_us += seconds * 1_000_000


@dataclass
class Pool:
    """Requests that end at once."""

    policy: Policy
    clock: Clock = field(default_factory=Clock)

    def __post_init__(self) -> None:
        self.store = MemoryStore(clock=self.clock)
        self.ids = map(str, count())
        self.store.join("pool", REPLICAS)
        self.clock.wait(1)

    def ask(self, prompt: Fingerprint, *candidates: str) -> Decision:
        made, decision = self.hold(prompt, *candidates)
        self.store.release(made.id)
        return decision

    def hold(
        self, prompt: Fingerprint | None, *candidates: str, session: str = "", limit: int = 0
    ) -> tuple[Reservation, Decision]:
        made = Reservation(
            next(self.ids),
            "pool",
            candidates or REPLICAS,
            self.policy,
            prompt,
            session=session.encode(),
            max_in_flight=limit,
        )
        return made, self.store.reserve_now(made)


def test_a_prompt_is_forgotten_when_as_much_as_the_cache_holds_came_after_it() -> None:
    pool = Pool(Policy(cache_tokens=1000))
    pool.ask(fingerprint((0,)), REPLICAS[0])  # 81 tokens, of which 64 up to its checkpoint
    for other in range(1, 12):
        pool.ask(fingerprint((other,)), REPLICAS[0])
        pool.ask(fingerprint((0,)), REPLICAS[1])  # which has a cache of its own
    # 11 prompts of 6 blocks each: 66 of 62 blocks.
    assert pool.ask(fingerprint((0,)), REPLICAS[0]).reason is Reason.COLD
    assert pool.ask(fingerprint((5,)), REPLICAS[0]).matched_tokens == 64


def test_use_keeps_a_prompt_alive() -> None:
    pool = Pool(Policy(cache_tokens=1000))
    for other in range(1, 40):
        assert pool.ask(fingerprint((0,)), REPLICAS[0]).matched_tokens == (0 if other == 1 else 64)
        pool.ask(fingerprint((other,)), REPLICAS[0])


def test_without_a_capacity_only_time_makes_forget() -> None:
    pool = Pool(Policy(ttl_s=60))
    pool.ask(fingerprint((0,)))
    for other in range(1, 40):
        pool.ask(fingerprint((other,)))
    pool.clock.wait(58)
    assert pool.ask(fingerprint((0,))).reason is Reason.MATCHED
    pool.clock.wait(60)
    assert pool.ask(fingerprint((0,))).reason is Reason.COLD


def test_a_prompt_in_steady_use_outlives_its_ttl_at_every_depth() -> None:
    pool = Pool(Policy(ttl_s=60))
    deep, shallow = fingerprint((0, 1, 2, 3)), fingerprint((0,))
    for _ in range(20):
        pool.ask(deep)
        pool.clock.wait(14)
    assert pool.ask(deep).matched_tokens == 256
    assert pool.ask(shallow).matched_tokens == 64


def test_a_session_is_with_who_served_it_last() -> None:
    pool = Pool(Policy())
    first, decision = pool.hold(fingerprint((0,)), session="s")
    served = REPLICAS[1 - REPLICAS.index(decision.ranked[0])]
    pool.store.served(first.id, served, ok=True)
    pool.store.release(first.id)
    for other in range(1, 5):
        made, decision = pool.hold(fingerprint((other,)), session="s")
        assert (decision.ranked[0], decision.reason) == (served, Reason.SESSION)
        assert decision.matched_tokens == 0
        pool.store.release(made.id)
    # Who may not be chosen this time keeps it; who took nothing in does not get it.
    pool.store.release(pool.hold(None, decision.ranked[1], session="s")[0].id)
    assert pool.hold(None, session="s")[1].ranked[0] == served
    failed, _ = pool.hold(None, session="t")
    pool.store.served(failed.id, "", ok=False)
    pool.store.release(failed.id)
    assert pool.hold(fingerprint((9,)), session="t")[1].reason is Reason.COLD


def test_a_session_ends_with_its_replica_and_its_time() -> None:
    pool = Pool(Policy(ttl_s=60))
    ends: list[Callable[[], None]] = [
        lambda: pool.clock.wait(60),
        lambda: pool.store.leave("pool", REPLICAS[0]),
        lambda: pool.store.restarted("pool", REPLICAS[0], "second"),
    ]
    for end in ends:
        pool.store.restarted("pool", REPLICAS[0], "first")
        pool.clock.wait(2)
        pool.store.release(pool.hold(None, REPLICAS[0], session="s")[0].id)
        made, decision = pool.hold(None, session="s")
        assert (decision.ranked[0], decision.reason) == (REPLICAS[0], Reason.SESSION)
        pool.store.release(made.id)
        end()
        made, decision = pool.hold(None, session="s")
        assert decision.reason is Reason.NO_PROMPT
        pool.store.release(made.id)


def test_what_is_over_the_limit_is_shed_and_holds_nothing() -> None:
    pool = Pool(Policy())
    held = [pool.hold(fingerprint((each,)), limit=2) for each in range(4)]
    assert sorted(decision.ranked[0] for _, decision in held) == sorted(REPLICAS * 2)
    shed, decision = pool.hold(fingerprint((0,)), limit=2)
    assert (decision.ranked, decision.reason) == ((), Reason.SHED)
    assert decision.best_tokens == 64
    assert pool.hold(fingerprint((0,)), limit=3)[1].ranked  # who has more weight has more room
    pool.store.release(shed.id)
    pool.store.release(held[0][0].id)
    pool.store.served(held[1][0].id, held[2][1].ranked[0], ok=True)  # a retry goes where it goes


def test_new_keys_are_bounded_and_what_is_known_stays_known() -> None:
    pool = Pool(Policy(ttl_s=60, max_keys=3))
    for prompt in ((0,), (1,), (2,), (3,), (4,)):
        assert pool.ask(fingerprint(prompt)).ranked
    assert (pool.store.status().entries, pool.store.status().unwritten) == (3, 2)

    pool.clock.wait(40)  # used again, it is written again: that is no new key
    assert [pool.ask(fingerprint((each,))).matched_tokens for each in (2, 4)] == [64, 0]
    pool.clock.wait(21)
    assert pool.ask(fingerprint((4,))).reason is Reason.COLD
    assert [pool.ask(fingerprint((each,))).matched_tokens for each in (2, 4)] == [64, 64]
