"""Where a pool's members come from: the interface, and the two kinds that are a plain list."""

from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple, Protocol

from extproc.routing import Standings


class Candidates(NamedTuple):
    """Who may be chosen.

    Attributes:
        addresses: Canonical addresses, without repeats; empty leaves the choice to Envoy.
        matched_only: Leave the choice to Envoy unless a candidate holds some of the prompt.
        standings: Of those that bear less than others, by the source's weights.
    """

    addresses: tuple[str, ...]
    matched_only: bool = False
    standings: Standings = MappingProxyType({})


class Service(NamedTuple):
    """Who served a request.

    Attributes:
        address: The replica; never empty.
        attempts: How often Envoy sent the request to a replica; 0 where not told.
        chosen: Our first choice; empty where the choice was Envoy's.
        answered: Whether the response is the replica's own rather than Envoy's about it.
    """

    address: str
    attempts: int
    chosen: str
    answered: bool


class Source(Protocol):
    """Knows a pool's members. Its methods are on a request's path: they must not wait."""

    @property
    def name(self) -> str:
        """The kind of source, as ``/pools`` and the logs name it."""

    @property
    def told(self) -> bool:
        """Whether somebody told all members; else they are those that were seen so far."""

    def candidates(self) -> Candidates:
        """Who may be chosen for one request."""

    def served(self, service: Service) -> None:
        """Learn from who served."""


class Listed:
    """Members that somebody else has settled: what is served teaches nothing.

    Args:
        name: Who settled them.
        addresses: Canonical, without repeats.
    """

    told = True

    def __init__(self, name: str, addresses: tuple[str, ...]) -> None:
        self.name = name
        self._candidates = Candidates(addresses)

    def candidates(self) -> Candidates:
        """All of them."""
        return self._candidates

    def served(self, service: Service) -> None:
        """Nothing to learn."""


@lru_cache(maxsize=1024)
def static(addresses: tuple[str, ...]) -> Listed:
    """The list of the setting ``x-prefix-replicas``."""
    return Listed("static", addresses)
