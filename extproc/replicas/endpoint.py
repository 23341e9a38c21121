"""A replica as a discovery source describes it."""

from collections.abc import Iterable
from typing import NamedTuple

from extproc.routing import Standing


class SourceError(Exception):
    """A source cannot tell who is in a pool. The message says what is wrong, and what to do."""


class Endpoint(NamedTuple):
    """One replica.

    Attributes:
        address: Canonical ``ip:port`` or ``[ipv6]:port``.
        zone: Where it runs; empty where the source does not say.
        weight: Its share of the load against the others', at least 1.
        priority: 0 is the first choice; others stand in where no better one is healthy.
        healthy: Whether the source would send it requests.
    """

    address: str
    zone: str = ""
    weight: int = 1
    priority: int = 0
    healthy: bool = True


def listing(endpoints: Iterable[Endpoint]) -> tuple[Endpoint, ...]:
    """Endpoints sorted by address, each address once: of repeats the first counts."""
    found: dict[str, Endpoint] = {}
    for endpoint in endpoints:
        found.setdefault(endpoint.address, endpoint)
    return tuple(found[address] for address in sorted(found))


def standings(endpoints: Iterable[Endpoint]) -> dict[str, Standing]:
    """What those bear whose weight is below the greatest."""
    weights = {endpoint.address: endpoint.weight for endpoint in endpoints}
    most = max(weights.values(), default=1)
    return {
        address: Standing(max(1, 1000 * weight // most))
        for address, weight in weights.items()
        if weight < most
    }


def routable(endpoints: Iterable[Endpoint]) -> tuple[str, ...]:
    """Who may be chosen: the healthy ones of the best priority that has any; else all.

    As Envoy does in panic: where nobody is healthy, a request is better sent than refused.
    """
    everyone = list(endpoints)
    healthy = [endpoint for endpoint in everyone if endpoint.healthy]
    best = min((endpoint.priority for endpoint in healthy), default=0)
    chosen = [endpoint for endpoint in healthy if endpoint.priority == best] or everyone
    return tuple(endpoint.address for endpoint in chosen)
