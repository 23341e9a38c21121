"""What a router knows of one pool's replicas beyond who they are."""

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

import structlog

from extproc.replicas.checks import Checks
from extproc.replicas.faults import Fault
from extproc.replicas.health import Ejection, Fit, Health, HealthPolicy, ReplicaHealth
from extproc.replicas.source import Candidates
from extproc.routing import Standings, together

_log = structlog.get_logger(__name__)


class FleetStore(Protocol):
    """The part of an affinity store that routers tell each other by."""

    def post(self, pool: str, topic: str, text: str, *, ttl_s: int) -> None:
        """Put up a notice, or take it down with an empty text."""

    def board(self, pool: str) -> Mapping[str, str]:
        """Topic to text; the same mapping again while nothing changes."""

    def elected(self, pool: str, job: str) -> bool:
        """Whether this router is the one to do a job."""


class View(Protocol):
    """Something that knows how replicas stand."""

    def standings(self, addresses: Sequence[str], model: str) -> Standings:
        """The standings of candidates that do not stand full, for a request to a model."""


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
        views: Who else knows how they stand.
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
        self.views: list[View] = []
        self._pool = pool
        self._store = store
        self._check_policy = CheckPolicy()
        self._checks: Checks | None = None
        self._ending: set[asyncio.Task[None]] = set()

    def apply(self, health: HealthPolicy, checks: CheckPolicy) -> None:
        """Take the pool's settings over."""
        self.health.policy = health
        if checks != self._check_policy:
            self._check_policy = checks
            self._end_checks()
            if checks.path:
                self._checks = Checks(
                    self.health,
                    lambda address: self._store.elected(self._pool, f"check/{address}"),
                    path=checks.path,
                    interval_s=checks.interval_s,
                )
                self._checks.start()

    def fit(self, candidates: Candidates, model: str = "") -> Fit:
        """Who of the candidates may be chosen for a request to a model, and how they stand."""
        fit = self.health.fit(candidates.addresses)
        if not self.views and not candidates.standings:
            return fit
        views = [view.standings(fit.addresses, model) for view in self.views]
        return fit._replace(standings=together([fit.standings, candidates.standings, *views]))

    def states(self, addresses: Iterable[str]) -> Mapping[str, ReplicaHealth]:
        """How replicas fare, for people to read."""
        return self.health.states(addresses)

    async def close(self) -> None:
        """End what runs in the background."""
        self._end_checks()
        await asyncio.gather(*self._ending)

    def _end_checks(self) -> None:
        if self._checks is not None:
            task = asyncio.get_running_loop().create_task(self._checks.close())
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)
            self._checks = None
