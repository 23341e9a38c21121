"""The members that a gateway lets a request go to, of those that a pool has."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from extproc.processing.wire import canonical_address, canonical_host
from extproc.replicas.source import Candidates, Service, Source

SUBSET_NAMESPACE = "envoy.lb.subset_hint"
SUBSET_KEY = "x-gateway-destination-endpoint-subset"
"""The request metadata by which a gateway limits the choice. Source: the endpoint-picker protocol
of the Gateway API Inference Extension (proposal 004)."""


class Hint(NamedTuple):
    """What the metadata names.

    Attributes:
        addresses: Canonical ``ip:port``, in order, without repeats.
        hosts: Addresses without a port, which stand for every port: ``10.0.0.1``, ``[::1]``.
    """

    addresses: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()


class Subset:
    """The part of a pool that a hint names.

    Args:
        hint: Who may be chosen.
        pool: Knows the pool's members.
        within: Whether only members may be chosen, where the pool's members are told rather than
            learned. Otherwise an address with a port is taken at its word.
    """

    name = "subset"
    told = True

    def __init__(self, hint: Hint, pool: Source, *, within: bool = False) -> None:
        self._hint = hint
        self._pool = pool
        self._within = within

    def candidates(self) -> Candidates:
        """Who is named, and a member as far as that matters."""
        known = self._pool.candidates()
        addresses, hosts = self._hint
        at_any_port = [each for each in known.addresses if _host(each) in hosts] if hosts else []
        if self._within and self._pool.told:
            addresses = tuple(each for each in addresses if each in known.addresses)
        named = tuple(dict.fromkeys((*addresses, *at_any_port)))
        return Candidates(named, standings=known.standings)

    def served(self, service: Service) -> None:
        """Let the pool learn from our choices; of Envoy's it cannot tell from whom they were."""
        if service.chosen:
            self._pool.served(service)


def hint_of(metadata: Mapping[str, Mapping[str, Any]]) -> Hint | None:
    """The subset that a request's metadata names; None where it names none.

    Args:
        metadata: Namespace to fields; the subset is a list of addresses, or one text with commas.
    """
    fields = metadata.get(SUBSET_NAMESPACE)
    value = fields.get(SUBSET_KEY) if fields else None
    if value is None:
        return None
    items = value.split(",") if isinstance(value, str) else value if isinstance(value, list) else ()
    return _parsed(tuple(item for item in items if isinstance(item, str)))


@lru_cache(maxsize=1024)
def _parsed(items: tuple[str, ...]) -> Hint:
    addresses: dict[str, None] = {}
    hosts: dict[str, None] = {}
    for item in map(str.strip, items):
        if address := canonical_address(item):
            addresses[address] = None
        elif host := canonical_host(item):
            hosts[host] = None
    return Hint(tuple(addresses), tuple(hosts))


def _host(address: str) -> str:
    return address.rpartition(":")[0]
