"""What a router knows of one pool's replicas beyond who they are."""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from time import monotonic
from typing import Any, NamedTuple, Protocol

import structlog

from extproc.affinity.store import ReplicaState
from extproc.replicas.checks import Checks
from extproc.replicas.engine.engines import EnginePolicy, Engines
from extproc.replicas.engine.follower import Follower
from extproc.replicas.engine.orca import read_report
from extproc.replicas.engine.polling import Polling
from extproc.replicas.engine.state import EngineState
from extproc.replicas.faults import Fault
from extproc.replicas.health import Ejection, Fit, Health, HealthPolicy, ReplicaHealth
from extproc.replicas.source import Candidates
from extproc.routing import SHADOW, Policy, Standings, together

_log = structlog.get_logger(__name__)

_NOT_ASKED = EnginePolicy()
_REPORT_EVERY_S = 1.0
_REPORT_HOLDS_S = 10
_MOST_REPORTING = 1000


class FleetStore(Protocol):
    """The part of an affinity store that routers tell each other by."""

    def post(self, pool: str, topic: str, text: str, *, ttl_s: int) -> None:
        """Put up a notice, or take it down with an empty text."""

    def board(self, pool: str) -> Mapping[str, str]:
        """Topic to text; the same mapping again while nothing changes."""

    def elected(self, pool: str, job: str) -> bool:
        """Whether this router is the one to do a job."""

    def restarted(self, pool: str, replica: str, incarnation: str) -> None:
        """Void a replica's older affinity if ``incarnation`` differs from the last one told."""

    async def snapshot(self, pool: str) -> Mapping[str, ReplicaState]:
        """All members of a pool and how they fare."""


class View(Protocol):
    """Something that knows how replicas stand."""

    def standings(self, addresses: Sequence[str], model: str) -> Standings:
        """The standings of candidates that do not stand full, for a request to a model."""


class Work(Protocol):
    """Something that runs in the background."""

    async def close(self) -> None:
        """End it."""


class CheckPolicy(NamedTuple):
    """Active checks: the path that is asked for (empty for none), and how often in seconds."""

    path: str = ""
    interval_s: int = 5


class Fleet:
    """The replicas of one pool.

    Args:
        pool: The pool's name.
        store: Where routers tell each other.
        ejections: Counts the ejections that this router decides on.

    Attributes:
        health: How the replicas fare.
        engines: What their engines tell.
    """

    def __init__(self, pool: str, store: FleetStore, ejections: Counter[Fault]) -> None:
        def ejected(address: str, ejection: Ejection) -> None:
            ejections[ejection.fault] += 1
            _log.warning(
                "replica ejected",
                pool=pool,
                replica=address,
                fault=ejection.fault.value,
                strikes=ejection.strikes,
            )

        self.health = Health(pool, store, ejected=ejected)
        self.engines = Engines(pool, store)
        self._views: tuple[View, ...] = (self.engines,)
        self._follower = Follower(pool, store)
        self._pool = pool
        self._store = store
        self._check_policy = CheckPolicy()
        self._checks: Checks | None = None
        self._engine_policy = EnginePolicy()
        self._polling: Polling | None = None
        self._subscriptions: Work | None = None
        self._reported: dict[str, float] = {}  # replica to when its load report was taken in
        self._ending: set[asyncio.Task[None]] = set()

    def apply(
        self, health: HealthPolicy, checks: CheckPolicy, engines: EnginePolicy = _NOT_ASKED
    ) -> None:
        """Take the pool's settings over."""
        self.health.policy = health
        if engines != self._engine_policy:
            self._apply_engines(engines)
        if checks != self._check_policy:
            self._check_policy = checks
            self._end(self._checks)
            self._checks = None
            if checks.path:
                self._checks = Checks(
                    self.health,
                    lambda address: self._store.elected(self._pool, f"check/{address}"),
                    path=checks.path,
                    interval_s=checks.interval_s,
                )
                self._checks.start()

    def _apply_engines(self, policy: EnginePolicy) -> None:
        self._engine_policy = policy
        self.engines.decode_tokens = policy.decode_tokens
        pool = self._pool
        self._follower.ledgers = (pool, pool + SHADOW) if policy.shadow else (pool,)
        self._end(self._polling)
        self._polling = None
        if policy.path:
            self._polling = Polling(
                self._follower,
                self.health.candidates,
                lambda address: self._store.elected(pool, f"engine/{address}"),
                path=policy.path,
                interval_s=policy.interval_s,
            )
            self._polling.start()
        self._end(self._subscriptions)
        self._subscriptions = None
        if policy.events_port:
            self._subscriptions = subscriptions(
                pool,
                self._follower,
                self.health.candidates,
                lambda address: self._store.elected(pool, f"engine/{address}"),
                policy,
            )

    def fit(self, candidates: Candidates, model: str = "") -> Fit:
        """Who of the candidates may be chosen for a request to a model, and how they stand."""
        fit = self.health.fit(candidates.addresses)
        views = [view.standings(fit.addresses, model) for view in self._views]
        parts = [each for each in (fit.standings, candidates.standings, *views) if each]
        return fit._replace(standings=together(parts)) if parts else fit

    def applied(self, policy: Policy) -> Policy:
        """The policy with what the engines tell of themselves."""
        return self.engines.applied(policy)

    def reported(
        self, address: str, headers: Mapping[str, Sequence[str]]
    ) -> Coroutine[Any, Any, None] | None:
        """What is to be done with the load report in a response's headers, if anything.

        One each second is enough of a replica, and none where its metrics are asked for.
        """
        state = None if self._polling is not None else read_report(headers)
        now_s = monotonic()
        if state is None or now_s - self._reported.get(address, -_REPORT_EVERY_S) < _REPORT_EVERY_S:
            return None
        if len(self._reported) >= _MOST_REPORTING:
            self._reported.clear()
        self._reported[address] = now_s
        return self._take(address, state)

    async def _take(self, address: str, state: EngineState) -> None:
        members = await self._follower.members()
        ours = members[address].in_flight if address in members else None
        self._follower.look(address, state, members, ours=ours, ttl_s=_REPORT_HOLDS_S)

    def states(self, addresses: Iterable[str]) -> Mapping[str, ReplicaHealth]:
        """How replicas fare, for people to read."""
        return self.health.states(addresses)

    async def close(self) -> None:
        """End what runs in the background."""
        self._end(self._checks)
        self._end(self._polling)
        self._end(self._subscriptions)
        await asyncio.gather(*self._ending)

    def _end(self, work: Work | None) -> None:
        if work is not None:
            task = asyncio.get_running_loop().create_task(work.close())
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)


def subscriptions(
    pool: str,
    follower: Follower,
    candidates: Callable[[], Sequence[str]],
    elected: Callable[[str], bool],
    policy: EnginePolicy,
) -> Work | None:
    """Follow cache events; nothing where the packages for that are not installed."""
    try:
        from extproc.replicas.engine.subscription import (  # noqa: PLC0415  # an extra
            Subscriptions,
        )
    except ImportError:
        _log.warning(
            "KV events cannot be read",
            pool=pool,
            key="x-prefix-kv-events-port",
            value=policy.events_port,
            cure="pip install 'prefix-extproc[kv-events]' brings what it needs",
        )
        return None
    made = Subscriptions(
        follower, candidates, elected, port=policy.events_port, replay_port=policy.replay_port
    )
    made.start()
    return made
