"""What one router finds out about engines, and tells the others."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from extproc.affinity.store import ReplicaState, StoreError
from extproc.replicas.engine.engines import TOPIC
from extproc.replicas.engine.progress import Progress
from extproc.replicas.engine.report import Report
from extproc.replicas.engine.state import EngineState

_MOST_ERROR = 200


class EngineStore(Protocol):
    """The part of an affinity store that engines matter to."""

    def post(self, pool: str, topic: str, text: str, *, ttl_s: int) -> None:
        """Put up a notice, or take it down with an empty text."""

    def restarted(self, pool: str, replica: str, incarnation: str) -> None:
        """Void a replica's older affinity if ``incarnation`` differs from the last one told."""

    async def snapshot(self, pool: str) -> Mapping[str, ReplicaState]:
        """All members of a pool and how they fare."""


class _Engine:
    """One replica's engine as this router follows it."""

    __slots__ = ("block_tokens", "cleared", "events", "process", "progress", "removed", "told")

    def __init__(self) -> None:
        self.progress = Progress()
        self.process = ""
        self.cleared = ""
        self.told: dict[str, str] = {}  # ledger to incarnation
        self.events = 0
        self.removed = 0
        self.block_tokens = 0


class Follower:
    """Follows the engines of a pool.

    Args:
        pool: The pool's name.
        store: Where routers tell each other.
        clock: Seconds, from any start.
        now: Unix seconds.
    """

    def __init__(
        self,
        pool: str,
        store: EngineStore,
        *,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.ledgers: Sequence[str] = (pool,)
        self._pool = pool
        self._store = store
        self._clock = clock
        self._now = now
        self._engines: dict[str, _Engine] = {}

    async def members(self) -> Mapping[str, ReplicaState]:
        """What all routers have open at the pool's replicas; nothing where the store is silent."""
        try:
            return await self._store.snapshot(self._pool)
        except (StoreError, TimeoutError):
            return {}

    def keep(self, addresses: Sequence[str]) -> None:
        """Forget all others: somebody else follows them, or nobody."""
        for address in self._engines.keys() - set(addresses):
            del self._engines[address]

    def look(
        self,
        address: str,
        state: EngineState,
        members: Mapping[str, ReplicaState],
        *,
        ours: int | None,
        ttl_s: int,
    ) -> None:
        """Take in what an engine told.

        Args:
            address: Whose engine.
            state: What it told.
            members: As the store has them.
            ours: Requests of the routers that may have been open there.
            ttl_s: Seconds for which that holds.
        """
        engine = self._engines.setdefault(address, _Engine())
        member = members.get(address)
        if member is not None and state.engine != "orca":
            process, _, cleared = member.incarnation.partition("|")
            engine.process = engine.process or process
            engine.cleared = max(engine.cleared, cleared)  # times, of equal length
            if state.started_at is not None:
                engine.process = f"{state.started_at:.2f}"
            elif not engine.process or engine.progress.restarted(state):
                engine.process = f"seen {self._now():.2f}"
            self._tell(address, engine, member)
        engine.progress.look(state, self._clock())
        report = replace(
            engine.progress.report(ours),
            events=engine.events,
            evicted_tokens=engine.removed * engine.block_tokens,
        )
        self._post(address, report, ttl_s)

    def cleared(self, address: str) -> None:
        """Void a replica's affinity: its engine forgot everything."""
        engine = self._engines.setdefault(address, _Engine())
        self._tell(address, engine, None)  # or the first one told would void nothing
        engine.cleared = f"{self._now():.3f}"
        self._tell(address, engine, None)

    def events(self, address: str, count: int, removed: int, block_tokens: int) -> None:
        """Take in events of an engine's cache.

        Args:
            address: Whose engine.
            count: How many there are.
            removed: Blocks that were evicted.
            block_tokens: Tokens of a block; 0 where not told.
        """
        engine = self._engines.setdefault(address, _Engine())
        engine.events += count
        engine.removed += removed
        engine.block_tokens = block_tokens or engine.block_tokens

    def failed(self, address: str, error: str, ttl_s: int) -> None:
        """Take in that an engine could not be asked."""
        self._post(address, Report(error=error[:_MOST_ERROR]), ttl_s)

    def _tell(self, address: str, engine: _Engine, member: ReplicaState | None) -> None:
        incarnation = f"{engine.process}|{engine.cleared}"
        if member is not None and member.incarnation != incarnation:
            engine.told.pop(self._pool, None)  # the store does not have it, whatever it was told
        for ledger in self.ledgers:
            if engine.told.get(ledger) != incarnation:
                engine.told[ledger] = incarnation
                self._store.restarted(ledger, address, incarnation)

    def _post(self, address: str, report: Report, ttl_s: int) -> None:
        self._store.post(self._pool, TOPIC + address, report.text(), ttl_s=ttl_s)
