"""Where a pool's members come from: the interface, and the two kinds that are a plain list."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

from extproc.processing.wire import canonical_address

SUBSET_NAMESPACE = "envoy.lb.subset_hint"
SUBSET_KEY = "x-gateway-destination-endpoint-subset"
"""The request metadata by which a gateway limits the choice. Source: the endpoint-picker protocol
of the Gateway API Inference Extension (proposal 004)."""


class Candidates(NamedTuple):
    """Who may be chosen.

    Attributes:
        addresses: Canonical addresses, without repeats; empty leaves the choice to Envoy.
        matched_only: Leave the choice to Envoy unless a candidate holds some of the prompt.
    """

    addresses: tuple[str, ...]
    matched_only: bool = False


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


def subset(metadata: Mapping[str, Mapping[str, Any]]) -> Listed | None:
    """The subset that a request's metadata names; None where it names none.

    Args:
        metadata: Namespace to fields; the subset is a list of ``ip:port``, or one text with commas.
    """
    fields = metadata.get(SUBSET_NAMESPACE)
    hint = fields.get(SUBSET_KEY) if fields else None
    if hint is None:
        return None
    items = hint.split(",") if isinstance(hint, str) else hint if isinstance(hint, list) else ()
    addresses = (canonical_address(item.strip()) for item in items if isinstance(item, str))
    return Listed("subset", tuple(dict.fromkeys(filter(None, addresses))))
