"""Learning a pool's members from who serves."""

from collections.abc import Callable, Collection
from random import random
from typing import Protocol

from extproc.replicas.source import Candidates, Service

LEAST_PICKS = 32
PICKS_PER_MEMBER = 8
EXPLORED = 0.02
"""Share of cold requests that stay with Envoy for good, so that new members are found."""


class Observation:
    """When a pool is known well enough to choose among its members. Pure.

    Envoy's own policy reaches every member before long. When ``max(32, 8 x known)`` picks in a row
    have found nobody new, the odds that somebody is missing are small: with n equally likely
    members the chance to overlook one in 8 n picks is below e^-8.
    """

    def __init__(self) -> None:
        self._streak = 0

    def learned(self, known: int) -> bool:
        """Whether the pool counts as known, with so many members."""
        return self._streak >= max(LEAST_PICKS, PICKS_PER_MEMBER * known)

    def picked(self, address: str, known: Collection[str]) -> None:
        """Take in that Envoy picked a replica by its own policy."""
        self._streak = self._streak + 1 if address in known else 0


def is_gone(service: Service) -> bool:
    """Whether a served request shows that its first choice is no member any more.

    Envoy passes over addresses that are not in its cluster: then the first attempt goes elsewhere.
    At a later attempt the first choice was tried, so that it is a matter of health.
    """
    return bool(service.chosen) and service.attempts == 1 and service.address != service.chosen


class Membership(Protocol):
    """The part of an affinity store that shares members among routers."""

    def join(self, pool: str, replicas: list[str]) -> None:
        """Add members."""

    def leave(self, pool: str, replica: str) -> None:
        """Remove a member."""

    def members(self, pool: str) -> Collection[str]:
        """The members, sorted."""


class Observed:
    """Members by observation, shared among routers through the store.

    Args:
        pool: The pool's name in the store.
        store: Who shares the members.
        roll: Draws a number from 0 to 1.
    """

    name = "observed"
    told = False

    def __init__(self, pool: str, store: Membership, *, roll: Callable[[], float] = random) -> None:
        self._pool = pool
        self._store = store
        self._roll = roll
        self._observation = Observation()

    def candidates(self) -> Candidates:
        """The members; while learning, and for a few requests ever after, only where they match."""
        members = tuple(self._store.members(self._pool))
        learned = self._observation.learned(len(members))
        return Candidates(members, matched_only=not learned or self._roll() < EXPLORED)

    def served(self, service: Service) -> None:
        """Who served is a member; who was passed over is none."""
        known = self._store.members(self._pool)
        if not service.chosen:
            self._observation.picked(service.address, known)
        if service.answered and service.address not in known:
            self._store.join(self._pool, [service.address])
        if is_gone(service) and service.chosen in known:
            self._store.leave(self._pool, service.chosen)
