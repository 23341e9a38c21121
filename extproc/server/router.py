"""From a request to a choice: what all requests of this router share."""

import asyncio
import os
from collections.abc import Coroutine, Iterable, Mapping
from itertools import count
from typing import Any

import structlog

from extproc.affinity.store import AffinityStore
from extproc.pool_settings import KEYS, Parsed, PoolSettings, SettingError, parse
from extproc.processing.budget import Budget
from extproc.processing.events import RequestHead
from extproc.prompt import unreadable
from extproc.prompt.model import Unreadable
from extproc.replicas import Observed, Source, Subset, hint_of, static
from extproc.replicas.discovery import Discovery
from extproc.replicas.engine.report import Report
from extproc.replicas.fleet import Fleet
from extproc.replicas.health import ReplicaHealth
from extproc.replicas.prefill import PoolRate
from extproc.routing import Protocol
from extproc.server.decision_log import DecisionLog
from extproc.server.logging import places
from extproc.server.recent import Recent
from extproc.server.stats import Stats
from extproc.server.tracing import Tracer

_log = structlog.get_logger(__name__)

DEFAULT_POOL = "default"
_MOST_POOLS = 1000
_MAX_REPORTED = 1000


class Router:
    """What the exchanges of one process share.

    Args:
        store: Affinity and load.
        window: Most bytes of a body to read where a pool does not say.
        incarnation: This process's name among all routers; part of every reservation's id.
        stats: What it counts in.
        log: Where decisions are logged, or None.
        tracer: Where spans of decisions are made, or None.
        defaults: Pool settings, as metadata, that hold unless a stream brings others.
        inspect_memory: Bytes that all streams together keep for their choices; 0 for no limit.
        max_pools: Most pools that are named by Envoy's clusters.
    """

    def __init__(
        self,
        store: AffinityStore,
        *,
        window: int,
        incarnation: str,
        stats: Stats | None = None,
        log: DecisionLog | None = None,
        tracer: Tracer | None = None,
        defaults: Iterable[tuple[str, str]] = (),
        inspect_memory: int = 0,
        max_pools: int = _MOST_POOLS,
    ) -> None:
        self.store = store
        self.stats = stats or Stats()
        self.log = log
        self.tracer = tracer
        self.discovery = Discovery(store)
        self._window = window
        self._defaults = tuple(defaults)
        self._incarnation = incarnation
        self._ids = (f"{incarnation}-{number}" for number in count())
        self._observed = Recent[str, Observed](_MOST_POOLS)
        self._rates = Recent[tuple[str, int], PoolRate](_MOST_POOLS)
        self._fleets = Recent[str, Fleet](
            _MOST_POOLS, forgotten=lambda fleet: self.spawn(fleet.close())
        )
        self._reported: set[tuple[str, str, str]] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._warned_of_address = False
        self.budget = Budget(inspect_memory)
        self._max_pools = max_pools
        self._pools: set[str] = set()

    def next_id(self) -> str:
        """A reservation id that no router has used before."""
        return next(self._ids)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run what may outlast the stream that it is for."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    async def settle(self) -> None:
        """Wait for everything that was spawned."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (fault := task.exception()) is not None:
            self.fault(fault)

    def fault(self, fault: BaseException) -> None:
        """Count and log a fault of our own by type and place; its text may hold a client's."""
        kind = type(fault).__name__
        self.stats.errors[kind] += 1
        _log.error("internal fault, request left to Envoy", error=kind, where=places(fault))

    def settings(self, metadata: Iterable[Any] | None) -> Parsed:
        """The pool's settings that a stream's initial metadata brings."""
        return parse((*self._defaults, *(metadata or ())))

    def window(self, settings: PoolSettings) -> int:
        """Most bytes of a body to read."""
        return settings.inspect_window or self._window

    def held_back(self) -> None:
        """Count that bodies were cut because all streams together kept too many bytes."""
        denied, self.budget.denied = self.budget.denied, 0
        for _ in range(denied):
            self.stats.limits.hit(
                "--inspect-memory", "bodies count as cut there, or are routed by load"
            )

    def admits(self, pool: str, settings: PoolSettings) -> bool:
        """Whether there is room for a pool.

        A pool that the configuration names always is. A cluster's name may come from a client,
        where a route takes it from a header: of those there are only so many.
        """
        if settings.pool or pool in self._pools:
            return True
        if len(self._pools) < self._max_pools:
            self._pools.add(pool)
            return True
        self.stats.limits.hit("--max-pools", "Envoy routes the requests of further pools by itself")
        return False

    def source(self, pool: str, head: RequestHead, settings: PoolSettings) -> Source:
        """Where the candidates of a request come from."""
        members = self._members(pool, settings)
        hint = hint_of(head.metadata)
        if hint is None:
            return members
        return Subset(hint, members, within=settings.protocol is Protocol.EPP)

    def _members(self, pool: str, settings: PoolSettings) -> Source:
        """Where a pool's members come from: the first that tells."""
        if settings.replicas:
            return static(settings.replicas)
        if settings.discovery:
            return self.discovery.source(
                pool, settings.discovery, until_then=lambda: self._observing(pool)
            )
        return self._observing(pool)

    def _observing(self, pool: str) -> Observed:
        return self._observed.get(pool, lambda: Observed(pool, self.store))

    def fleet(self, pool: str, settings: PoolSettings) -> Fleet:
        """How a pool's replicas fare."""
        ejections = self.stats.pool(pool).ejections
        fleet = self._fleets.get(pool, lambda: Fleet(pool, self.store, ejections))
        fleet.apply(settings.health, settings.checks, settings.engines)
        return fleet

    def health(self, pool: str, addresses: Iterable[str]) -> Mapping[str, ReplicaHealth]:
        """The health of a pool's replicas, for people to read."""
        fleet = self._fleets.find(pool)
        return fleet.states(addresses) if fleet else {}

    def engines(self, pool: str) -> Mapping[str, Report]:
        """What the engines of a pool's replicas tell."""
        fleet = self._fleets.find(pool)
        return fleet.engines.reports if fleet else {}

    async def close(self) -> None:
        """End what runs in the background."""
        await asyncio.gather(self.discovery.close(), *(fleet.close() for fleet in self._fleets))

    def rate(self, pool: str, settings: PoolSettings) -> PoolRate:
        """How fast the replicas of a pool prefill, as far as any router saw it."""
        guess = settings.prefill_rate
        return self._rates.get(
            (pool, guess), lambda: PoolRate(pool, guess, self._incarnation, self.store)
        )

    def served_by_nobody(self, pool: str) -> None:
        """Warn, once, that Envoy does not tell who serves: nothing can be learned without it."""
        if not self._warned_of_address:
            self._warned_of_address = True
            _log.warning(
                "Envoy does not tell who served",
                pool=pool,
                cure="add upstream.address to response_attributes of the ext_proc filter",
            )

    def report(self, errors: Iterable[SettingError], head: RequestHead) -> None:
        """Count bad settings, and log each once for each route."""
        route = route_of(head)
        for error in errors:
            self.stats.setting_errors[error.key if error.key in KEYS else "unknown"] += 1
            once = (error.key, error.value, route)
            if once not in self._reported and len(self._reported) < _MAX_REPORTED:
                self._reported.add(once)
                _log.warning(
                    "bad pool setting",
                    key=error.key,
                    value=error.value,
                    route=route,
                    cure=error.cure,
                )


def new_incarnation() -> str:
    """A name for this process that no other has had."""
    return os.urandom(4).hex()


def pool_name(head: RequestHead, settings: PoolSettings) -> str:
    """The pool that a request belongs to."""
    return settings.pool or str(head.attributes.get("xds.cluster_name") or "") or DEFAULT_POOL


def route_of(head: RequestHead) -> str:
    """The name of a request's route, or its beginning; empty where Envoy does not tell."""
    return str(head.attributes.get("xds.route_name") or "")[:200]


def problem_of(head: RequestHead) -> Unreadable | None:
    """Why a request with this head has no readable prompt, or None."""
    upgrade = head.header("upgrade") or head.header(":protocol")
    return unreadable(
        head.header(":method"),
        head.header(":path"),
        head.header("content-type"),
        head.header("content-encoding"),
        upgrade,
    )
