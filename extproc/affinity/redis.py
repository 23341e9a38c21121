"""The affinity store in Redis or Valkey, shared by all routers."""

import asyncio
import contextlib
import struct
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from xxhash import xxh3_64_digest

from extproc.affinity.board import MOST_TOPICS
from extproc.affinity.connect import SEVERAL
from extproc.affinity.directory import Held, PoolDirectory, decode
from extproc.affinity.keys import PoolKeys
from extproc.affinity.link import Link
from extproc.affinity.outbox import Outbox
from extproc.affinity.scripts import Value
from extproc.affinity.share import STALE, Share, StaleIndexError
from extproc.affinity.store import ReplicaState, Reservation, StoreError, StoreStatus, moved
from extproc.limits import Limits
from extproc.routing import FULL, Decision, Policy, Reason, Weighed, rendezvous

_REASONS = {
    1: Reason.MATCHED,
    2: Reason.SPILLED,
    3: Reason.COLD,
    4: Reason.NO_PROMPT,
    5: Reason.BASELINE,
    6: Reason.OBSERVING,
    7: Reason.SHED,
    8: Reason.SESSION,
}
_TOLD_AT_ONCE = 16
"""News in waiting beyond which adopted reservations do not add to them: releases come first."""

_STANDING = struct.Struct("<HI")

_IDLE_S = 600.0
"""Seconds after which an unused pool gets no signs of life any more."""


class RedisStore:
    """Affinity and load shared through Redis.

    Every router owns a share per pool: the open reservations under its own key. Reserving and
    releasing change the share and the totals in one script; ``sync_all`` shows life and repairs
    the share; a share silent for ``silence_s`` is taken back by any router.

    Args:
        client: A ``redis.asyncio`` client (see ``connect``).
        router: This process's name, unique over all routers and restarts.
        deadline_s: Longest wait for ``reserve``.
        grace_s: Seconds for which the store may hold what this router does not know of.
        silence_s: Seconds without a sign of life after which a router counts as dead.
        clock: Lua source replacing the server's clock; for tests.
    """

    def __init__(
        self,
        client: Any,
        *,
        router: str,
        deadline_s: float = 0.010,
        grace_s: float = 2.0,
        silence_s: int = 6,
        clock: str = "",
    ) -> None:
        self._link = Link(client, clock=clock)
        self._router = router
        self._deadline_s = deadline_s
        self._share = Share(self._link, router, grace_s=grace_s, silence_s=silence_s)
        self._pools: dict[str, PoolDirectory] = {}
        self._holders: dict[str, PoolDirectory] = {}  # by the ids of what is held
        self._limits = Limits()
        self._outbox = Outbox(self._release_all, self._lost)

    async def start(self) -> None:
        """Begin to send news; ``sync_all`` is for the owner to call every heartbeat."""
        self._outbox.start()

    async def close(self) -> None:
        """See ``AffinityStore.close``."""
        await self._outbox.stop()
        with contextlib.suppress(TimeoutError, StoreError):
            async with asyncio.timeout(1.0):
                await self._outbox.flush()
                for pool in self._pools.values():
                    await self._share.reclaim(pool, self._router, silence_s=-1)
        await self._link.client.aclose()

    async def warm(self) -> None:
        """See whether the store answers, and do now what the first requests would wait for.

        Raises:
            StoreError: The store does not answer.
        """
        await self._link.warm()

    async def reserve(self, reservation: Reservation) -> Decision:
        """See ``AffinityStore.reserve``."""
        pool = self._pool(reservation.pool, reservation.policy)
        held = pool.held.get(reservation.id)
        if held is not None:
            return held.decision
        pool.used_at = time.monotonic()
        try:
            reply = await self._link.guard(self._reserve(pool, reservation), self._deadline_s)
        except BaseException:
            # The store may hold it although nobody heard so.
            if reservation.hold:
                self._outbox.release(reservation.pool, reservation.id)
            raise
        decision = _decision(pool, reservation, reply)
        if decision.ranked and reservation.hold:
            self._hold(pool, reservation, decision)
        return decision

    async def weigh(self, reservation: Reservation) -> Decision:
        """See ``AffinityStore.weigh``."""
        pool = self._pool(reservation.pool, reservation.policy)
        asked = replace(reservation, explain=True)
        reply = await self._link.guard(self._reserve(pool, asked, dry=True), self._deadline_s)
        return _decision(pool, asked, reply)

    async def learn(self, reservation: Reservation) -> None:
        """Record the affinity of a reservation whose request nobody waits for.

        Raises:
            StoreError: The store did not answer.
        """
        pool = self._pool(reservation.pool, reservation.policy)
        await self._reserve(pool, replace(reservation, hold=False))

    def adopt(self, reservation: Reservation, decision: Decision) -> None:
        """Hold a reservation that was decided elsewhere.

        It is told at once while little else is to be told, so that the next turn finds its
        replica; in any case the next ``sync_all`` tells that it is held.
        """
        pool = self._pool(reservation.pool, reservation.policy)
        self._hold(pool, reservation, decision)
        pool.dirty = True
        if self._outbox.waiting < _TOLD_AT_ONCE:
            replica = decision.ranked[0]
            self._outbox.tell(
                reservation.pool, lambda: self._settle(reservation, elsewhere=replica, ok=True)
            )

    def served(self, reservation_id: str, replica: str, *, ok: bool) -> None:
        """See ``AffinityStore.served``."""
        pool = self._holders.get(reservation_id)
        if pool is None:
            return
        held = pool.held[reservation_id]
        if ok and replica == held.replica:
            return
        reservation = held.reservation
        elsewhere = replica if replica != held.replica else ""
        if elsewhere:
            held.decision = replace(held.decision, ranked=(elsewhere,))
        self._outbox.tell(
            reservation.pool, lambda: self._settle(reservation, elsewhere=elsewhere, ok=ok)
        )

    def release(self, reservation_id: str) -> None:
        """See ``AffinityStore.release``."""
        pool = self._holders.pop(reservation_id, None)
        if pool is None:
            return
        held = pool.held.pop(reservation_id)
        if pool.released is not None:
            pool.released.append(reservation_id)
        self._outbox.release(held.reservation.pool, reservation_id)

    def join(self, pool: str, replicas: Sequence[str]) -> None:
        """See ``AffinityStore.join``."""
        directory = self._pool(pool)
        new = [each for each in replicas if each not in directory.members]
        if new:
            directory.members = tuple(sorted({*directory.members, *new}))
            self._outbox.tell(pool, lambda: directory.join(self._link, new))

    def leave(self, pool: str, replica: str) -> None:
        """See ``AffinityStore.leave``."""
        directory = self._pool(pool)
        directory.leave(replica)
        keys = directory.keys
        names = [keys.state, keys.members, keys.uses, keys.incarnations]
        self._outbox.tell(pool, lambda: self._link.run("leave", names, [replica]))

    def members(self, pool: str) -> Sequence[str]:
        """See ``AffinityStore.members``."""
        return self._pool(pool).members

    def restarted(self, pool: str, replica: str, incarnation: str) -> None:
        """See ``AffinityStore.restarted``."""
        directory = self._pool(pool)
        keys = [directory.keys.state, directory.keys.members, directory.keys.incarnations]

        async def tell() -> None:
            await directory.join(self._link, [replica])
            await self._link.run("restarted", keys, [replica, incarnation])

        self._outbox.tell(pool, tell)

    def post(self, pool: str, topic: str, text: str, *, ttl_s: int) -> None:
        """See ``AffinityStore.post``."""
        directory = self._pool(pool)
        notice = directory.board.post(topic, text, ttl_s)
        if notice is None:
            return

        async def tell() -> None:
            args: list[Value] = [topic, text, ttl_s, MOST_TOPICS]
            await self._link.run("post", [directory.keys.board], args)
            directory.board.told(notice)

        self._outbox.tell(pool, tell)

    def board(self, pool: str) -> Mapping[str, str]:
        """See ``AffinityStore.board``."""
        return self._pool(pool).board.read()

    def elected(self, pool: str, job: str) -> bool:
        """See ``AffinityStore.elected``."""
        routers = self._pool(pool).routers
        if not routers:
            return True
        return rendezvous(xxh3_64_digest(job.encode()), routers)[0] == self._router

    def routers(self, pool: str) -> int:
        """How many live routers a pool had when that was last heard; several, if it never was."""
        return len(self._pool(pool).routers) or SEVERAL

    async def snapshot(self, pool: str) -> Mapping[str, ReplicaState]:
        """See ``AffinityStore.snapshot``."""
        directory, client = self._pool(pool), self._link.client
        keys = directory.keys
        state, members, incarnations, (seconds, micros) = await self._link.guard(
            asyncio.gather(
                client.get(keys.state),
                client.hgetall(keys.members),
                client.hgetall(keys.incarnations),
                client.time(),
            )
        )
        now_us = seconds * 1_000_000 + micros
        return decode(state or b"", members, incarnations, now_us, directory.policy.prefill_rate)

    def status(self) -> StoreStatus:
        """See ``AffinityStore.status``."""
        return self._link.status

    def suspend(self) -> None:
        """Tell nothing until ``resume``: the store does not answer."""
        self._outbox.suspend()
        for pool in self._pools.values():
            pool.dirty = True

    def resume(self) -> None:
        """Tell again, beginning with what waited."""
        self._outbox.resume()

    async def flush(self) -> None:
        """Send all news that wait.

        Raises:
            StoreError: Something could not be sent; ``sync_all`` will repair the counts.
        """
        await self._outbox.flush()

    async def sync_all(self) -> None:
        """Show life in every pool in use, and repair what disagrees.

        Raises:
            StoreError: A pool could not be synchronized; the others were tried all the same.
        """
        failed: StoreError | None = None
        for pool in list(self._pools.values()):
            if pool.held or time.monotonic() - pool.used_at < _IDLE_S:
                try:
                    await self._share.sync(pool)
                except StoreError as error:
                    pool.dirty = True
                    failed = error
        if failed is not None:
            raise failed

    # Calls to the store

    async def _reserve(
        self, pool: PoolDirectory, reservation: Reservation, *, dry: bool = False
    ) -> list[Any]:
        for _ in range(2):
            unknown = any(each not in pool.index for each in reservation.candidates)
            if unknown or not pool.generation:
                await pool.join(self._link, reservation.candidates)
            keys, args = self._question(pool, reservation, dry=dry)
            reply: list[Any] = await self._link.run("reserve", keys, args)
            if reply[0] != STALE:
                self._count(unwritten=reply[3])
                return reply
            pool.forget_indexes()
        raise StaleIndexError

    def _count(self, *, unwritten: int) -> None:
        if unwritten:
            self._link.status.unwritten += unwritten
            self._limits.hit("x-prefix-max-keys", "new prompts are routed, not remembered")

    def _question(
        self, pool: PoolDirectory, reservation: Reservation, *, dry: bool
    ) -> tuple[list[bytes], list[Value]]:
        """Keys and arguments as ``lua/reserve.lua`` wants them."""
        policy, fingerprint, names = reservation.policy, reservation.fingerprint, pool.keys
        tokens = fingerprint.tokens if fingerprint else ()
        keys = [names.state, names.open(self._router), names.routers, names.written]
        keys += _affinity_keys(names, reservation)
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
            _flags(reservation, dry=dry),
            fingerprint.total_tokens if fingerprint else 0,
            struct.pack(f"<{len(tokens)}I", *tokens),
            self._router,
            policy.cache_tokens,
            _packed(reservation),
            policy.session_tokens,
            reservation.max_in_flight,
            policy.max_keys,
        ]
        return keys, args

    async def _settle(self, reservation: Reservation, *, elsewhere: str, ok: bool) -> None:
        """Move a reservation to who served it, and withdraw affinity that did not come to be."""
        pool = self._pools[reservation.pool]
        await self._withdraw(pool, reservation)
        if not elsewhere:
            return
        await self._share.release(pool, [reservation.id])
        # Released meanwhile, it is not to be held again: only its affinity is news.
        hold = reservation.id in pool.held
        await self._reserve(pool, replace(moved(reservation, elsewhere), hold=hold))
        if not ok:
            await self._withdraw(pool, reservation)
        if pool.released is not None:
            pool.dirty = True  # the list under way still names the former replica

    async def _withdraw(self, pool: PoolDirectory, reservation: Reservation) -> None:
        affinity = _affinity_keys(pool.keys, reservation)
        if affinity:
            keys = [pool.keys.open(self._router), *affinity]
            sessions = int(bool(reservation.session))
            await self._link.run("withdraw", keys, [reservation.id, sessions])

    async def _release_all(self, pool: str, ids: Sequence[str]) -> None:
        directory = self._pools[pool]
        # What was adopted since is held all the same.
        ended = [each for each in ids if each not in directory.held]
        if ended:
            await self._share.release(directory, ended)

    def _hold(self, pool: PoolDirectory, reservation: Reservation, decision: Decision) -> None:
        pool.held[reservation.id] = Held(reservation, decision, time.monotonic())
        self._holders[reservation.id] = pool

    def _lost(self, pool: str) -> None:
        self._pools[pool].dirty = True

    def _pool(self, name: str, policy: Policy | None = None) -> PoolDirectory:
        pool = self._pools.get(name)
        if pool is None:
            pool = PoolDirectory(name, self._router, policy or Policy())
            self._pools[name] = pool
        elif policy is not None:
            pool.policy = policy
        return pool


def _flags(reservation: Reservation, *, dry: bool) -> int:
    return (
        reservation.matched_only
        + 2 * reservation.hold
        + 4 * bool(reservation.session)
        + 8 * reservation.explain
        + 16 * dry
    )


def _decision(pool: PoolDirectory, reservation: Reservation, reply: list[Any]) -> Decision:
    """A reply of ``lua/reserve.lua``; what was reserved before comes without an explanation."""
    columns = reply.pop() if reservation.explain and isinstance(reply[-1], list) else None
    reason, matched, best, _unwritten, *ranked = reply
    total = reservation.fingerprint.total_tokens if reservation.fingerprint else 0
    decision = Decision(pool.names(ranked), _REASONS[reason], matched, best, total)
    if columns is None:
        return decision
    columns[3] = columns[3] or [None] * len(reservation.candidates)
    weighed = tuple(map(Weighed, reservation.candidates, *columns))
    return replace(decision, weighed=weighed)


def _packed(reservation: Reservation) -> bytes:
    """The candidates' standings as ``lua/reserve.lua`` wants them; nothing where all are full."""
    if not reservation.standings:
        return b""
    found = [reservation.standings.get(each, FULL) for each in reservation.candidates]
    return b"".join([_STANDING.pack(*each) for each in found])


def _affinity_keys(names: PoolKeys, reservation: Reservation) -> list[bytes]:
    """The session's entry, the sticky entry and the checkpoints, as far as there are any."""
    fingerprint, session = reservation.fingerprint, reservation.session
    keys = [names.home(session)] if session else []
    if fingerprint is not None:
        keys += [names.home(fingerprint.sticky), *map(names.checkpoint, fingerprint.hashes)]
    return keys
