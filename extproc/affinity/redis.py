"""The affinity store in Redis or Valkey, shared by all routers."""

import asyncio
import contextlib
import itertools
import struct
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from redis.exceptions import ConnectionError as LostConnectionError
from redis.exceptions import RedisError

from extproc.affinity.keys import PoolKeys
from extproc.affinity.memory import moved
from extproc.affinity.scripts import Scripts, Value
from extproc.affinity.store import ReplicaState, Reservation, StoreError, StoreStatus
from extproc.routing import Decision, Policy, Reason

_REASONS = {
    1: Reason.MATCHED,
    2: Reason.SPILLED,
    3: Reason.COLD,
    4: Reason.NO_PROMPT,
    5: Reason.BASELINE,
    6: Reason.OBSERVING,
}
_STALE = -1
_HEADER, _RECORD = 16, struct.Struct("<I6s6s6sIB5x")
_JOIN_EVERY_S = 60.0
_IDLE_S = 600.0
_BACKGROUND_DEADLINE_S = 2.0
"""For calls that no request waits for: a slow store should still get them."""
_OUTBOX = 10_000
"""Most news kept for a store that does not answer; what is lost is repaired or learned again."""


class StaleIndexError(StoreError):
    """The pool's state was lost or its indexes changed while a call was under way."""


@dataclass(slots=True)
class _Pool:
    """What this router knows of a pool's indexes."""

    keys: PoolKeys
    policy: Policy
    generation: bytes = b""
    index: dict[str, bytes] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    members: tuple[str, ...] = ()
    joined_at: float = 0.0
    used_at: float = 0.0
    dirty: bool = True
    joining: asyncio.Lock = field(default_factory=asyncio.Lock)
    released_while_syncing: list[str] | None = None


@dataclass(slots=True)
class _Held:
    reservation: Reservation
    decision: Decision
    since: float

    @property
    def replica(self) -> str:
        return self.decision.ranked[0]

    @property
    def tokens(self) -> int:
        return self.decision.total_tokens - self.decision.matched_tokens


@dataclass(frozen=True, slots=True)
class _Task:
    """One thing to tell the store in the background; releases of a pool are told together."""

    pool: str
    release: str = ""
    run: Callable[[], Awaitable[None]] | None = None


class RedisStore:
    """Affinity and load shared through Redis.

    Every router owns a share per pool: the open reservations under its own key. Reserving and
    releasing change the share and the totals in one script; ``sync`` shows life every
    ``heartbeat_s`` and repairs the share; a share silent for ``silence_s`` is taken back by any
    router.

    Args:
        client: A ``redis.asyncio`` client (see ``connect``).
        router: This process's name, unique over all routers and restarts.
        deadline_s: Longest wait for ``reserve``.
        heartbeat_s: Seconds between signs of life.
        silence_s: Seconds without one after which a router counts as dead.
        clock: Lua source replacing the server's clock; for tests.
    """

    def __init__(
        self,
        client: Any,
        *,
        router: str,
        deadline_s: float = 0.010,
        heartbeat_s: float = 2.0,
        silence_s: int = 6,
        clock: str = "",
    ) -> None:
        self._client = client
        self._scripts = Scripts(client, clock=clock)
        self._router = router
        self._deadline_s = deadline_s
        self._heartbeat_s = heartbeat_s
        self._silence_s = silence_s
        self._pools: dict[str, _Pool] = {}
        self._held: dict[str, _Held] = {}
        self._outbox: list[_Task] = []
        self._suspended = False
        self._wake = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._status = StoreStatus("redis", detail="shared store answers")

    async def start(self) -> None:
        """Begin to send releases; ``sync_all`` is for the owner to call every heartbeat."""
        self._tasks = [asyncio.create_task(self._send_outbox(), name="affinity-outbox")]

    async def close(self) -> None:
        """See ``AffinityStore.close``."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        with contextlib.suppress(TimeoutError, StoreError):
            async with asyncio.timeout(1.0):
                await self.flush()
                for pool in self._pools.values():
                    await self._reclaim(pool, self._router, silence=-1)
        await self._client.aclose()

    async def ping(self) -> None:
        """See whether the store answers at all.

        Raises:
            StoreError: It does not.
        """
        await self._guard(self._client.ping(), _BACKGROUND_DEADLINE_S)

    async def reserve(self, reservation: Reservation) -> Decision:
        """See ``AffinityStore.reserve``."""
        held = self._held.get(reservation.id)
        if held is not None:
            return held.decision
        pool = self._pool(reservation.pool, reservation.policy)
        pool.used_at = time.monotonic()
        try:
            async with asyncio.timeout(self._deadline_s):
                reply = await self._reserve(pool, reservation)
        except TimeoutError:
            self._count("timeout")
            self._doubt(reservation)
            raise StoreError(f"no answer within {self._deadline_s * 1000:.0f} ms") from None
        except BaseException:
            self._doubt(reservation)
            raise
        reason, matched, best, *ranked = reply
        total = reservation.fingerprint.total_tokens if reservation.fingerprint else 0
        names = tuple(pool.names[index] for index in ranked if index in pool.names)
        decision = Decision(names, _REASONS[reason], matched, best, total)
        if names and reservation.hold:
            self._held[reservation.id] = _Held(reservation, decision, time.monotonic())
        return decision

    def _doubt(self, reservation: Reservation) -> None:
        """Let go of what the store may hold although nobody heard so."""
        if reservation.hold and not self._suspended:
            self._outbox.append(_Task(reservation.pool, release=reservation.id))
            self._wake.set()

    def adopt(self, reservation: Reservation, decision: Decision) -> None:
        """Hold a reservation that was decided elsewhere; the next ``sync_all`` will tell it."""
        self._held[reservation.id] = _Held(reservation, decision, time.monotonic())
        self._pool(reservation.pool, reservation.policy).dirty = True

    def served(self, reservation_id: str, replica: str, *, ok: bool) -> None:
        """See ``AffinityStore.served``."""
        held = self._held.get(reservation_id)
        if held is None or (ok and replica == held.replica):
            return
        before, reservation = held.replica, held.reservation
        elsewhere = bool(replica) and replica != before
        if elsewhere:
            held.decision = replace(held.decision, ranked=(replica,))
        self._tell(reservation.pool, lambda: self._settle(reservation, replica, elsewhere, ok))

    def release(self, reservation_id: str) -> None:
        """See ``AffinityStore.release``."""
        held = self._held.pop(reservation_id, None)
        if held is None:
            return
        name = held.reservation.pool
        pool = self._pools[name]
        if self._suspended:
            pool.dirty = True
            return
        if pool.released_while_syncing is not None:
            pool.released_while_syncing.append(reservation_id)
        self._outbox.append(_Task(name, release=reservation_id))
        self._wake.set()

    def join(self, pool: str, replicas: Sequence[str]) -> None:
        """See ``AffinityStore.join``."""
        state = self._pool(pool)
        new = [each for each in replicas if each not in state.members]
        if new:
            state.members = tuple(sorted({*state.members, *new}))
            self._tell(pool, lambda: self._join(state, new))

    def leave(self, pool: str, replica: str) -> None:
        """See ``AffinityStore.leave``."""
        state = self._pool(pool)
        state.members = tuple(each for each in state.members if each != replica)
        state.index.pop(replica, None)
        keys = state.keys
        names = [keys.state, keys.members, keys.uses, keys.incarnations]
        self._tell(pool, lambda: self._run("leave", names, [replica]))

    def members(self, pool: str) -> Sequence[str]:
        """See ``AffinityStore.members``."""
        return self._pool(pool).members

    def restarted(self, pool: str, replica: str, incarnation: str) -> None:
        """See ``AffinityStore.restarted``."""
        state = self._pool(pool)
        names = [state.keys.state, state.keys.members, state.keys.incarnations]

        async def tell() -> None:
            if replica not in state.index:
                await self._join(state, [replica])
            await self._run("restarted", names, [replica, incarnation])

        self._tell(pool, tell)

    async def snapshot(self, pool: str) -> Mapping[str, ReplicaState]:
        """See ``AffinityStore.snapshot``."""
        state = self._pool(pool)
        keys, client = state.keys, self._client
        packed, members, incarnations, (seconds, micros) = await self._guard(
            asyncio.gather(
                client.get(keys.state),
                client.hgetall(keys.members),
                client.hgetall(keys.incarnations),
                client.time(),
            ),
            _BACKGROUND_DEADLINE_S,
        )
        now_ms, rate = seconds * 1000 + micros // 1000, state.policy.prefill_rate
        found = {}
        for name, index in sorted(members.items()):
            start = _HEADER + _RECORD.size * int(index)
            record = (packed or b"")[start : start + _RECORD.size].ljust(_RECORD.size, b"\0")
            in_flight, pending, clock, _, epoch, member = _RECORD.unpack(record)
            if not member:
                continue
            queue = int.from_bytes(pending, "little")
            elapsed = max(0, now_ms - int.from_bytes(clock, "little"))
            found[name.decode()] = ReplicaState(
                in_flight,
                queue - min(queue, elapsed * rate // 1000),
                epoch,
                incarnations.get(name, b"").decode(errors="replace"),
            )
        return found

    def status(self) -> StoreStatus:
        """See ``AffinityStore.status``."""
        return self._status

    def suspend(self) -> None:
        """Tell nothing until ``resume``: the store does not answer."""
        self._suspended = True
        self._outbox = [task for task in self._outbox if not task.release]
        for pool in self._pools.values():
            pool.dirty = True

    def resume(self) -> None:
        """Tell again, beginning with what waited."""
        self._suspended = False
        self._wake.set()

    async def flush(self) -> None:
        """Send everything that waits to be told.

        Raises:
            StoreError: Something could not be sent; ``sync_all`` will repair the counts.
        """
        while self._outbox:
            batch, self._outbox = self._outbox, []
            by_pool: dict[str, list[_Task]] = {}
            for task in batch:
                by_pool.setdefault(task.pool, []).append(task)
            outcomes = await asyncio.gather(
                *(self._tell_pool(self._pools[name], tasks) for name, tasks in by_pool.items()),
                return_exceptions=True,
            )
            for outcome in outcomes:
                if isinstance(outcome, BaseException):
                    raise outcome

    async def sync_all(self) -> None:
        """Show life in every pool in use, and repair what disagrees.

        Raises:
            StoreError: A pool could not be synchronized; the others were tried all the same.
        """
        now = time.monotonic()
        holding = {held.reservation.pool for held in self._held.values()}
        failed: StoreError | None = None
        for name, pool in self._pools.items():
            if not pool.generation and not pool.dirty:
                continue
            if name in holding or now - pool.used_at < _IDLE_S:
                try:
                    await self._sync(name, pool)
                except StoreError as error:
                    pool.dirty = True
                    failed = error
        if failed is not None:
            raise failed

    # Calls to the store

    async def _reserve(self, pool: _Pool, reservation: Reservation) -> list[int]:
        for _ in range(2):
            unknown = [each for each in reservation.candidates if each not in pool.index]
            if unknown or not pool.generation:
                await self._join(pool, reservation.candidates)
            keys, args = self._question(pool, reservation)
            reply: list[int] = await self._run("reserve", keys, args)
            if reply[0] != _STALE:
                return reply
            self._forget_indexes(pool)
        raise StaleIndexError("the pool's replicas changed twice during one call")

    def _question(self, pool: _Pool, reservation: Reservation) -> tuple[list[bytes], list[Value]]:
        policy, fingerprint, names = reservation.policy, reservation.fingerprint, pool.keys
        keys = [names.state, names.open(self._router)]
        args: list[Value] = [
            pool.generation,
            reservation.id,
            b"".join([pool.index[each] for each in reservation.candidates]),
            policy.strategy.value,
            policy.uncached_milli,
            policy.decode_tokens,
            policy.prefill_rate,
            policy.threshold,
            policy.ttl_s,
            int(reservation.matched_only) + 2 * int(reservation.hold),
        ]
        if fingerprint is None:
            return keys, [*args, 0, b""]
        keys += self._affinity_keys(names, reservation)
        tokens = struct.pack(f"<{len(fingerprint.tokens)}I", *fingerprint.tokens)
        return keys, [*args, fingerprint.total_tokens, tokens]

    @staticmethod
    def _affinity_keys(names: PoolKeys, reservation: Reservation) -> list[bytes]:
        fingerprint = reservation.fingerprint
        if fingerprint is None:
            return []
        return [names.home(fingerprint.sticky), *map(names.checkpoint, fingerprint.hashes)]

    async def _settle(
        self, reservation: Reservation, replica: str, elsewhere: bool, ok: bool
    ) -> None:
        """Move a reservation to who served it, and withdraw affinity that did not come to be."""
        pool = self._pools[reservation.pool]
        names = pool.keys
        mine = names.open(self._router)
        affinity = self._affinity_keys(names, reservation)
        if affinity:
            await self._run("withdraw", [mine, *affinity], [reservation.id])
        if not elsewhere:
            return
        await self._release(pool, [reservation.id])
        await self._reserve(pool, moved(reservation, replica))
        if affinity and not ok:
            await self._run("withdraw", [mine, *affinity], [reservation.id])
        if pool.released_while_syncing is not None:
            pool.dirty = True  # the list under way still names the former replica

    async def _release(self, pool: _Pool, ids: Sequence[str]) -> None:
        await self._run(
            "release",
            [pool.keys.state, pool.keys.open(self._router)],
            [pool.policy.prefill_rate, *ids],
        )

    async def _join(self, pool: _Pool, replicas: Iterable[str]) -> None:
        async with pool.joining:
            keys, names = pool.keys, list(replicas)
            if pool.generation and all(each in pool.index for each in names):
                return
            wanted = list(dict.fromkeys([*names, *pool.index]))
            generation, *indexes = await self._run(
                "join",
                [keys.state, keys.members, keys.uses, keys.routers, keys.incarnations],
                [self._router, *wanted],
            )
            pool.index = {
                name: index.to_bytes(2, "big") for name, index in zip(wanted, indexes, strict=True)
            }
            pool.names = dict(zip(indexes, wanted, strict=True))
            pool.generation = generation
            pool.members = tuple(sorted({*pool.members, *wanted}))
            pool.joined_at = time.monotonic()

    async def _sync(self, name: str, pool: _Pool) -> None:
        now = time.monotonic()
        if not pool.generation or now - pool.joined_at > _JOIN_EVERY_S:
            await self._rejoin(name, pool)
        held = {key: each for key, each in self._held.items() if each.reservation.pool == name}
        pool.released_while_syncing = []
        try:
            whole, pool.dirty = pool.dirty, False
            reply = await self._compare(pool, held, whole=whole)
            if reply[0] == _STALE:
                await self._rejoin(name, pool)
                reply = await self._compare(pool, held, whole=True)
            elif reply[0] == 0:
                reply = await self._compare(pool, held, whole=True)
            if reply[0] == _STALE:
                raise StaleIndexError("the pool's replicas changed twice during one call")
            # Told before or after the list: telling again is harmless.
            again = pool.released_while_syncing
            if again:
                await self._release(pool, again)
        finally:
            pool.released_while_syncing = None
        end = reply.index(b"")
        pool.members = tuple(sorted(each.decode() for each in reply[1:end]))
        for each in set(pool.index) - set(pool.members):
            del pool.index[each]
        for router in reply[end + 1 :]:
            self._status.reclaimed += await self._reclaim(
                pool, router.decode(), silence=self._silence_s
            )

    async def _compare(self, pool: _Pool, held: Mapping[str, _Held], *, whole: bool) -> list[Any]:
        now, rate = time.monotonic(), pool.policy.prefill_rate
        keys = pool.keys
        args: list[Value] = [
            pool.generation,
            self._router,
            rate,
            self._silence_s,
            int(self._heartbeat_s * 1000),
            len(held),
        ]
        if whole:
            for key, each in held.items():
                if each.replica not in pool.index:
                    continue  # it left the pool: nobody counts its requests any more
                left = max(0, each.tokens - int((now - each.since) * rate))
                index = int.from_bytes(pool.index[each.replica], "big")
                args += [key, index, left]
        reply: list[Any] = await self._run(
            "sync",
            [
                keys.state,
                keys.members,
                keys.uses,
                keys.routers,
                keys.incarnations,
                keys.open(self._router),
            ],
            args,
        )
        return reply

    async def _rejoin(self, name: str, pool: _Pool) -> None:
        known = list(pool.index)
        self._forget_indexes(pool)
        holding = (each.replica for each in self._held.values() if each.reservation.pool == name)
        await self._join(pool, dict.fromkeys(itertools.chain(known, holding)))

    @staticmethod
    def _forget_indexes(pool: _Pool) -> None:
        pool.generation = b""
        pool.dirty = True

    async def _reclaim(self, pool: _Pool, router: str, *, silence: int) -> int:
        keys = pool.keys
        taken: int = await self._run(
            "reclaim",
            [keys.state, keys.routers, keys.open(router)],
            [router, pool.policy.prefill_rate, silence],
        )
        return taken

    async def _run(self, script: str, keys: Sequence[bytes], args: Sequence[Value]) -> Any:
        return await self._guard(self._scripts.run(script, keys, args), _BACKGROUND_DEADLINE_S)

    async def _guard(self, call: Awaitable[Any], deadline_s: float) -> Any:
        try:
            async with asyncio.timeout(deadline_s):
                return await call
        except TimeoutError:
            self._count("timeout")
            raise StoreError(f"no answer within {deadline_s:g} s") from None
        except (RedisError, OSError) as error:
            kind = "connection" if isinstance(error, LostConnectionError | OSError) else "error"
            self._count(kind)
            raise StoreError(f"{type(error).__name__}: {error}") from None

    # The background

    def _pool(self, name: str, policy: Policy | None = None) -> _Pool:
        pool = self._pools.get(name)
        if pool is None:
            pool = self._pools[name] = _Pool(PoolKeys(name), policy or Policy())
        elif policy is not None:
            pool.policy = policy
        return pool

    def _tell(self, pool: str, run: Callable[[], Awaitable[None]]) -> None:
        if len(self._outbox) < _OUTBOX:
            self._outbox.append(_Task(pool, run=run))
        if not self._suspended:
            self._wake.set()

    async def _tell_pool(self, pool: _Pool, tasks: Sequence[_Task]) -> None:
        """Tell one pool's news, in order but for releases, which come last and in one call."""
        try:
            for task in tasks:
                if task.run is not None:
                    await task.run()
            ids = [task.release for task in tasks if task.release]
            if ids:
                await self._release(pool, ids)
        except StoreError:
            pool.dirty = True
            raise

    async def _send_outbox(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            if self._suspended:
                continue
            with contextlib.suppress(StoreError):  # counted, and repaired by the next sync
                await self.flush()

    def _count(self, kind: str) -> None:
        self._status.failures[kind] = self._status.failures.get(kind, 0) + 1
