"""A shared store that may fail, with this router's own memory to fall back on."""

import asyncio
import contextlib
import itertools
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import replace

import structlog

from extproc.affinity.memory import MemoryStore
from extproc.affinity.redis import RedisStore
from extproc.affinity.store import ReplicaState, Reservation, StoreError, StoreStatus, moved
from extproc.routing import Decision

log = structlog.get_logger(__name__)

_FAILURES_TO_OPEN = 5
_PROBE_S = 0.5
_LEARNED = 10_000
"""Affinities remembered during an outage, the newest; about as many as a minute makes."""
_REPLAYED_AT_ONCE = 16


class ResilientStore:
    """Decides from the shared store while it answers in time, else from this router's memory.

    Every decision is also recorded in the memory, so it is warm when it is needed. After
    ``_FAILURES_TO_OPEN`` failures in a row the breaker opens: no request waits for the store until
    a probe in the background has found it, put this router's share right and told it the affinity
    learned meanwhile. Calls that fail together count once: one short stall is no outage, however
    many requests it met.

    Args:
        shared: The store of all routers.
        local: This router's memory.
        heartbeat_s: Seconds between signs of life in the shared store.
    """

    def __init__(self, shared: RedisStore, local: MemoryStore, *, heartbeat_s: float = 2.0) -> None:
        self._shared = shared
        self._local = local
        self._heartbeat_s = heartbeat_s
        self._failures = 0
        self._open = False
        self._fallbacks = 0
        self._replayed = 0
        self._detail = ""
        self._learned: OrderedDict[str, Reservation] = OrderedDict()  # by id
        self._replay_ids = itertools.count()
        self._keeper: asyncio.Task[None] | None = None
        self._closing = False

    async def start(self) -> None:
        """See ``AffinityStore.start``."""
        await self._shared.start()
        try:
            await self._shared.warm()
        except StoreError as error:
            self._trip(error)
        self._keeper = asyncio.create_task(self._keep(), name="affinity-keeper")

    async def close(self) -> None:
        """See ``AffinityStore.close``."""
        self._closing = True
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
        await self._shared.close()

    async def reserve(self, reservation: Reservation) -> Decision:
        """See ``AffinityStore.reserve``; never raises ``StoreError``."""
        if not self._open:
            failures = self._failures
            try:
                decision = await self._shared.reserve(reservation)
            except StoreError as error:
                self._failed(error, failures)
            else:
                self._failures = 0
                if decision.ranked:
                    self._local.reserve_now(moved(reservation, decision.ranked[0]))
                return decision
        self._fallbacks += 1
        decision = self._local.reserve_now(reservation)
        if decision.ranked:
            self._learn(moved(reservation, decision.ranked[0]))
            if reservation.hold:
                self._shared.adopt(reservation, decision)
        return replace(decision, shared=False)

    async def weigh(self, reservation: Reservation) -> Decision:
        """See ``AffinityStore.weigh``; never raises ``StoreError``."""
        if not self._open:
            with contextlib.suppress(StoreError):
                return await self._shared.weigh(reservation)
        return replace(await self._local.weigh(reservation), shared=False)

    def served(self, reservation_id: str, replica: str, *, ok: bool) -> None:
        """See ``AffinityStore.served``."""
        self._local.served(reservation_id, replica, ok=ok)
        learned = self._learned.get(reservation_id)
        if learned is not None:
            if ok and replica:
                self._learned[reservation_id] = moved(learned, replica)
            else:
                del self._learned[reservation_id]
        self._shared.served(reservation_id, replica, ok=ok)

    def release(self, reservation_id: str) -> None:
        """See ``AffinityStore.release``."""
        self._local.release(reservation_id)
        self._shared.release(reservation_id)

    def join(self, pool: str, replicas: Sequence[str]) -> None:
        """See ``AffinityStore.join``."""
        self._local.join(pool, replicas)
        self._shared.join(pool, replicas)

    def leave(self, pool: str, replica: str) -> None:
        """See ``AffinityStore.leave``."""
        self._local.leave(pool, replica)
        self._shared.leave(pool, replica)

    def members(self, pool: str) -> Sequence[str]:
        """See ``AffinityStore.members``: as the shared store last told them."""
        return self._shared.members(pool)

    def restarted(self, pool: str, replica: str, incarnation: str) -> None:
        """See ``AffinityStore.restarted``."""
        self._local.restarted(pool, replica, incarnation)
        self._shared.restarted(pool, replica, incarnation)

    def post(self, pool: str, topic: str, text: str, *, ttl_s: int) -> None:
        """See ``AffinityStore.post``."""
        self._shared.post(pool, topic, text, ttl_s=ttl_s)

    def board(self, pool: str) -> Mapping[str, str]:
        """See ``AffinityStore.board``: what was heard last, and this router's own."""
        return self._shared.board(pool)

    def elected(self, pool: str, job: str) -> bool:
        """See ``AffinityStore.elected``: each router for itself while the store is away."""
        return self._open or self._shared.elected(pool, job)

    async def snapshot(self, pool: str) -> Mapping[str, ReplicaState]:
        """See ``AffinityStore.snapshot``: this router's own view while the store is away."""
        if not self._open:
            with contextlib.suppress(StoreError):
                return await self._shared.snapshot(pool)
        return await self._local.snapshot(pool)

    def status(self) -> StoreStatus:
        """See ``AffinityStore.status``."""
        status = self._shared.status()
        return replace(
            status,
            shared=not self._open,
            detail=self._detail or status.detail,
            breaker="open" if self._open else "closed",
            fallbacks=self._fallbacks,
            replayed=self._replayed,
            entries=self._local.status().entries,
        )

    def _learn(self, reservation: Reservation) -> None:
        if reservation.fingerprint is not None or reservation.session:
            self._learned[reservation.id] = reservation
            if len(self._learned) > _LEARNED:
                self._learned.popitem(last=False)

    def _failed(self, error: StoreError, before: int) -> None:
        """Count a failure, unless another was counted since the call began."""
        if self._failures == before:
            self._failures += 1
        if self._failures >= _FAILURES_TO_OPEN and not self._open:
            self._trip(error)

    def _trip(self, error: StoreError) -> None:
        self._open = True
        self._detail = f"deciding from this router's memory: {error}"
        self._shared.suspend()
        log.warning("shared store lost, deciding from this router's memory", error=str(error))

    async def _keep(self) -> None:
        """Show life while the store answers, look for it while it does not.

        A cancellation can get lost in the client library (in its check of an idle connection), so
        a flag ends the loop too.
        """
        while not self._closing:
            await asyncio.sleep(_PROBE_S if self._open else self._heartbeat_s)
            failures = self._failures
            try:
                if self._open:
                    await self._recover()
                else:
                    await self._shared.sync_all()
                    await self._replay()
            except StoreError as error:
                if not self._open:
                    self._failed(error, failures)
            except Exception:
                log.exception("synchronizing with the shared store failed")

    async def _recover(self) -> None:
        await self._shared.warm()
        await self._shared.sync_all()
        self._shared.resume()
        await self._replay()
        self._open, self._failures, self._detail = False, 0, ""
        # Reservations taken while the share was put right are told now, not a heartbeat later.
        await self._shared.sync_all()
        log.info("shared store is back", replayed=self._replayed)

    async def _replay(self) -> None:
        """Tell the store what was learned while it was away, or too late for one request."""
        while self._learned:
            batch = list(itertools.islice(self._learned.values(), _REPLAYED_AT_ONCE))
            await asyncio.gather(
                *(
                    self._shared.learn(replace(each, id=f"replay-{next(self._replay_ids)}"))
                    for each in batch
                )
            )
            for each in batch:
                self._learned.pop(each.id, None)
            self._replayed += len(batch)
