"""Members by DNS: the addresses of a name, or the SRV records of a service."""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from itertools import chain
from time import monotonic
from typing import Any, NamedTuple

import dns.asyncresolver
import dns.exception
import dns.resolver

from extproc.replicas.assignment import Host, address_of
from extproc.replicas.endpoint import Endpoint, SourceError
from extproc.replicas.target import Asking, DnsTarget, Family, SrvTarget
from extproc.replicas.watch import Sink

_LIFETIME_S = 5.0
_CONSTANT_TTL_S = 60
"""For what DNS has no say in: IP addresses, and names of the hosts file."""

_ORDERS = {
    Family.AUTO: ("AAAA", "A"),
    Family.V4_ONLY: ("A",),
    Family.V6_ONLY: ("AAAA",),
    Family.V4_PREFERRED: ("A", "AAAA"),
    Family.ALL: ("A", "AAAA"),
}


class Addresses(NamedTuple):
    """IP addresses, and for how many seconds they hold."""

    found: list[str]
    ttl_s: int


class Lookup(NamedTuple):
    """Endpoints, and for how many seconds they hold."""

    endpoints: list[Endpoint]
    ttl_s: int


class Names:
    """Asks DNS servers.

    Args:
        asking: Whom, and how. The system's resolvers come with its hosts file.

    Raises:
        SourceError: The system has no resolvers.
    """

    def __init__(self, asking: Asking) -> None:
        self._system = not asking.server
        self._tcp = asking.tcp
        try:
            self._resolver = dns.asyncresolver.Resolver(configure=self._system)
        except (dns.exception.DNSException, OSError) as error:
            raise SourceError(f"no resolvers: {error}; name one with ?server=ip:port") from None
        if asking.server:
            host, _, port = asking.server.rpartition(":")
            self._resolver.nameservers = [host.strip("[]")]
            self._resolver.port = int(port)

    async def addresses(self, name: str, family: Family) -> Addresses:
        """The IP addresses of a name; none where it has none.

        Raises:
            SourceError: No server gives a proper answer.
        """
        if address_of(name, 1):
            return Addresses([name], _CONSTANT_TTL_S)
        found: list[str] = []
        ttls: list[int] = []
        for kind in _ORDERS[family]:
            answer = await self.query(name, kind)
            if answer is not None:
                found += [record.address for record in answer.rrset or ()]
                ttls.append(answer.chaining_result.minimum_ttl)
            if found and family is not Family.ALL:
                break
        if not found and self._system:
            return Addresses(await _by_the_system(name, family), _CONSTANT_TTL_S)
        return Addresses(found, min(ttls, default=0))

    async def query(self, name: str, kind: str) -> Any:
        """The answer to one question, or None where there is no such record.

        Raises:
            SourceError: No server gives a proper answer.
        """
        try:
            return await self._resolver.resolve(
                name, kind, tcp=self._tcp, lifetime=_LIFETIME_S, search=True
            )
        except (dns.resolver.NXDOMAIN, dns.resolver.NoAnswer):
            return None
        except (dns.exception.DNSException, OSError) as error:
            raise SourceError(f"asking DNS for {kind} of {name}: {error}") from None


async def _by_the_system(name: str, family: Family) -> list[str]:
    loop = asyncio.get_running_loop()
    try:
        infos = await loop.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except OSError:
        return []
    by_kind = {
        "A": [str(info[4][0]) for info in infos if info[0] == socket.AF_INET],
        "AAAA": [str(info[4][0]) for info in infos if info[0] == socket.AF_INET6],
    }
    lists = [by_kind[kind] for kind in _ORDERS[family] if by_kind[kind]]
    return list(chain.from_iterable(lists if family is Family.ALL else lists[:1]))


async def lookup_services(names: Names, target: SrvTarget) -> Lookup:
    """The endpoints of a service, with weights and priorities.

    Source: RFC 2782. A target that has no address is left out; a service of the target ``.`` is
    there, but has no replicas.

    Raises:
        SourceError: There are no records, none of them leads anywhere, or no server answers.
    """
    answer = await names.query(target.name, "SRV")
    if answer is None:
        raise SourceError(f"{target.name} has no SRV records: does the name exist?")
    hosts = [
        Host(
            str(record.target),
            record.port,
            Endpoint("", weight=max(1, record.weight), priority=record.priority),
        )
        for record in answer.rrset
        if str(record.target) != "."
    ]
    found = await lookup_hosts(names, hosts, target.family)
    ttl_s: int = answer.chaining_result.minimum_ttl
    return Lookup(found.endpoints, min(ttl_s, found.ttl_s) if hosts else ttl_s)


async def lookup_hosts(names: Names, hosts: Sequence[Host], family: Family) -> Lookup:
    """The endpoints of hosts that may have names; one without an address is left out.

    Raises:
        SourceError: None has an address, or no server answers.
    """
    asked = sorted({host.host for host in hosts})
    answers = await asyncio.gather(*(names.addresses(each, family) for each in asked))
    by_name = dict(zip(asked, answers, strict=True))
    endpoints = [
        host.as_endpoint._replace(address=address_of(each, host.port))
        for host in hosts
        for each in by_name[host.host].found
    ]
    if hosts and not endpoints:
        others = f" and {len(asked) - 1} others" if len(asked) > 1 else ""
        raise SourceError(f"{asked[0]}{others}: no addresses; do the names exist?")
    ttls = [answer.ttl_s for answer in answers if answer.found]
    return Lookup(endpoints, min(ttls, default=_CONSTANT_TTL_S))


class DnsFeed:
    """Asks DNS as often as the records' time to live demands.

    Args:
        lookup: What to ask for.
        asking: Whom to ask, and how.
        sleep: Waits, in seconds.
        clock: Seconds since whenever.
    """

    def __init__(
        self,
        lookup: Callable[[Names], Awaitable[Lookup]],
        asking: Asking,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._lookup = lookup
        self._asking = asking
        self._sleep = sleep
        self._clock = clock
        self._held: dict[str, tuple[float, Endpoint]] = {}

    async def follow(self, sink: Sink) -> None:
        """See ``Feed.follow``."""
        names = Names(self._asking)
        while True:
            found = await self._lookup(names)
            sink.heard(self._with_held(found.endpoints))
            await self._sleep(max(found.ttl_s, self._asking.interval_s))

    def _with_held(self, endpoints: list[Endpoint]) -> list[Endpoint]:
        now = self._clock()
        self._held |= {endpoint.address: (now, endpoint) for endpoint in endpoints}
        least = now - self._asking.hold_s
        self._held = {key: held for key, held in self._held.items() if held[0] >= least}
        return [endpoint for _, endpoint in self._held.values()]


def dns_feed(target: DnsTarget | SrvTarget) -> DnsFeed:
    """The feed of a discovery URL."""

    def lookup(names: Names) -> Awaitable[Lookup]:
        if isinstance(target, SrvTarget):
            return lookup_services(names, target)
        return lookup_hosts(names, [Host(target.name, target.port, Endpoint(""))], target.family)

    return DnsFeed(lookup, target.asking)
