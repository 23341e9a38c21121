"""The memory store and the Redis scripts are one algorithm: same history, same answers."""

import asyncio
import hashlib
import itertools
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from extproc.affinity import MemoryStore, RedisStore, Reservation
from extproc.affinity.connect import connect
from extproc.prompt.model import Fingerprint
from extproc.routing import Policy, Standing, Strategy, rendezvous
from extproc.routing.standing import MOST_QUEUED
from tests.valkey import Valkey

REPLICAS = [f"10.0.0.{number}:8000" for number in range(1, 6)]
START_US = 1_800_000_000_000_000
CLOCK_KEY = "test-clock"
CLOCK = f"clock = function() return tonumber(call('GET', '{CLOCK_KEY}')) end\n"
_serial = itertools.count()


def fingerprint(path: tuple[int, ...], *, tokens: int = 64) -> Fingerprint:
    """A prompt of one checkpoint per element: prompts share what their paths share."""
    digests = [hashlib.md5(repr(path[:size]).encode()).digest() for size in range(1, len(path) + 1)]
    counts = tuple(tokens * (each + 1) for each in range(len(path)))
    return Fingerprint(
        positions=tuple(256 * (each + 1) for each in range(len(path))),
        hashes=tuple(digests),
        tokens=counts,
        total_tokens=(counts[-1] if counts else 0) + 17,
        tie=hashlib.md5(repr(path[:1]).encode()).digest(),
        sticky=hashlib.md5(b"sticky" + repr(path[:2]).encode()).digest(),
    )


@dataclass(frozen=True)
class Reserve:
    path: tuple[int, ...] | None
    candidates: frozenset[int]
    strategy: Strategy
    matched_only: bool = False
    hold: bool = True
    cache_tokens: int = 0
    standings: tuple[Standing, ...] = ()
    session: int = 0
    max_in_flight: int = 0
    max_keys: int = 0
    explain: bool = False
    dry: bool = False


@dataclass(frozen=True)
class Again:
    which: int


@dataclass(frozen=True)
class Served:
    which: int
    replica: int
    ok: bool


@dataclass(frozen=True)
class Release:
    which: int


@dataclass(frozen=True)
class Wait:
    ms: int


@dataclass(frozen=True)
class Restart:
    replica: int
    incarnation: str


@dataclass(frozen=True)
class Leave:
    replica: int


replica = st.integers(0, len(REPLICAS) - 1)
which = st.integers(0, 30)
standing = st.builds(
    Standing, st.sampled_from([1000, 1000, 500, 100, 1]), st.sampled_from([0, 0, 60, MOST_QUEUED])
)
steps = st.one_of(
    st.builds(
        Reserve,
        path=st.one_of(
            st.none(),
            st.lists(st.integers(0, 2), max_size=5).map(tuple),
        ),
        candidates=st.frozensets(replica, min_size=1),
        strategy=st.sampled_from(Strategy),
        matched_only=st.sampled_from([False, False, False, True]),
        hold=st.sampled_from([True, True, True, False]),
        cache_tokens=st.sampled_from([0, 0, 300, 1_000]),
        standings=st.one_of(st.just(()), st.lists(standing, max_size=5).map(tuple)),
        session=st.sampled_from([0, 0, 1, 2]),
        max_in_flight=st.sampled_from([0, 0, 1, 2]),
        max_keys=st.sampled_from([0, 0, 3, 6]),
        explain=st.booleans(),
        dry=st.sampled_from([False, False, False, True]),
    ),
    st.builds(Again, which),
    st.builds(Served, which, st.integers(-1, len(REPLICAS) - 1), st.booleans()),
    st.builds(Release, which),
    st.builds(Wait, st.sampled_from([0, 1, 7, 100, 999, 3_000, 16_000, 61_000])),
    st.builds(Restart, replica, st.sampled_from(["a", "b"])),
    st.builds(Leave, replica),
)


FIRST = Reserve(
    path=(0,),
    candidates=frozenset([0, 1, 2]),
    strategy=Strategy.KV_AWARE,
    matched_only=False,
    hold=True,
    cache_tokens=0,
    standings=(),
    session=1,
    max_in_flight=0,
    max_keys=3,
    explain=False,
    dry=False,
)
# What a request that moved would have written is counted like what it would have written at once.
MOVED_AT_THE_LIMIT = [FIRST, Served(0, 0, ok=False), replace(FIRST, path=None, session=0)]

# Within one second: an index that is another replica's by now, and members that come back.
ANOTHER_AT_ITS_INDEX = [
    FIRST,
    Served(0, 1, ok=True),
    Release(0),
    Leave(1),
    replace(FIRST, candidates=frozenset([2])),
]
BACK_AGAIN = [
    replace(FIRST, candidates=frozenset([0])),
    Release(0),
    Leave(0),
    replace(FIRST, candidates=frozenset([0])),
    Restart(0, "a"),
    Restart(0, "b"),
    replace(FIRST, candidates=frozenset([0])),
    Restart(0, "a"),
    replace(FIRST, candidates=frozenset([0])),
]


class Pair:
    """Both stores under one clock."""

    def __init__(self, client: Any) -> None:
        self.now_us = START_US
        self.pool = f"agreement-{next(_serial)}"
        self.client = client
        self.memory = MemoryStore(clock=lambda: self.now_us)
        self.redis = RedisStore(client, router="router-1", deadline_s=30.0, clock=CLOCK)
        self.made: list[Reservation] = []

    async def turn(self, ms: int) -> None:
        self.now_us += ms * 1000
        await self.client.set(CLOCK_KEY, self.now_us)

    async def step(self, step: Any) -> None:
        if isinstance(step, Reserve):
            reservation = self.reservation(step)
            await (self.weigh(reservation) if step.dry else self.reserve(reservation))
        elif isinstance(step, Wait):
            await self.turn(step.ms)
        elif isinstance(step, Restart):
            self.both("restarted", self.pool, REPLICAS[step.replica], step.incarnation)
        elif isinstance(step, Leave):
            self.both("leave", self.pool, REPLICAS[step.replica])
        elif self.made:
            old = self.made[step.which % len(self.made)]
            if isinstance(step, Again):
                await self.reserve(old)
            elif isinstance(step, Served):
                who = REPLICAS[step.replica] if step.replica >= 0 else ""
                self.both("served", old.id, who, ok=step.ok)
            else:
                self.both("release", old.id)
        await self.redis.flush()

    def reservation(self, step: Reserve) -> Reservation:
        print_ = None if step.path is None else fingerprint(step.path)
        key = hashlib.md5(str(len(self.made)).encode()).digest() if print_ is None else print_.tie
        return Reservation(
            id=f"r-{len(self.made)}",
            pool=self.pool,
            candidates=rendezvous(key, [REPLICAS[each] for each in sorted(step.candidates)]),
            policy=Policy(
                step.strategy,
                prefill_rate=700,
                threshold=2,
                ttl_s=60,
                decode_tokens=30,
                cache_tokens=step.cache_tokens,
                session_tokens=100,
                max_keys=step.max_keys,
            ),
            fingerprint=print_,
            matched_only=step.matched_only,
            hold=step.hold,
            standings=dict(zip(REPLICAS, step.standings, strict=False)),
            session=hashlib.md5(b"session %d" % step.session).digest() if step.session else b"",
            max_in_flight=step.max_in_flight,
            explain=step.explain,
        )

    async def weigh(self, reservation: Reservation) -> None:
        """Nothing changes: the histories go on alike, and at the end nothing is held."""
        before = await self.stored()
        ours = await self.redis.weigh(reservation)
        assert ours == await self.memory.weigh(reservation), reservation
        assert [each.replica for each in ours.weighed] == list(reservation.candidates)
        assert await self.stored() == before

    async def stored(self) -> dict[bytes, Any]:
        """What the pool's checkpoints and homes are, which joining does not touch."""
        names = [key async for key in self.client.scan_iter(f"*{{{self.pool}}}:[ch]:*")]
        return dict(zip(names, await self.client.mget(names), strict=True)) if names else {}

    async def reserve(self, reservation: Reservation) -> None:
        ours = await self.redis.reserve(reservation)
        theirs = self.memory.reserve_now(reservation)
        if reservation.id not in [each.id for each in self.made]:
            assert ours == theirs, reservation
            assert self.redis.status().unwritten == self.memory.status().unwritten, reservation
            self.made.append(reservation)
        else:
            # After a move, Redis keeps the former reason.
            assert ours.ranked[:1] == theirs.ranked[:1]

    async def compare_loads(self) -> None:
        """All but pending tokens, which the snapshot drains by the server's own clock."""
        loads = [
            {
                name: (state.in_flight, state.epoch, state.incarnation)
                for name, state in (await store.snapshot(self.pool)).items()
            }
            for store in (self.memory, self.redis)
        ]
        assert loads[0] == loads[1], loads

    def both(self, method: str, *args: Any, **options: Any) -> None:
        getattr(self.memory, method)(*args, **options)
        getattr(self.redis, method)(*args, **options)


@settings(max_examples=60, deadline=None)
@given(history=st.lists(steps, max_size=40))
@example(history=MOVED_AT_THE_LIMIT)
@example(history=ANOTHER_AT_ITS_INDEX)
@example(history=BACK_AGAIN)
def test_same_history_same_answers(shared_valkey: Valkey, history: list[Any]) -> None:
    async def run() -> None:
        client = connect(shared_valkey.url)
        pair = Pair(client)
        try:
            await pair.turn(0)
            for step in history:
                await pair.step(step)
                await pair.compare_loads()
            for old in pair.made:
                pair.both("release", old.id)
            await pair.redis.flush()
            state = await client.get(pair.redis._pool(pair.pool).keys.state) or b""
            for start in range(16, len(state), 32):
                assert state[start : start + 10] == bytes(10), "in flight and pending are zero"
        finally:
            await client.aclose()

    asyncio.run(run())
