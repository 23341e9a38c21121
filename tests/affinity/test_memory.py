"""What the memory store takes a replica to hold. That Redis agrees is ``test_agreement``'s."""

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
        candidates = candidates or REPLICAS
        made = Reservation(next(self.ids), "pool", candidates, self.policy, prompt)
        decision = self.store.reserve_now(made)
        self.store.release(made.id)
        return decision


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
