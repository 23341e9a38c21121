"""What a discovery URL may name, taken apart."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

NODE = "prefix-extproc"
"""What we call ourselves at a control plane."""


class Family(StrEnum):
    """Which addresses of a name count, as Envoy's ``dns_lookup_family`` has it."""

    AUTO = "auto"
    """IPv6 if there are any, else IPv4."""
    V4_ONLY = "v4_only"
    V6_ONLY = "v6_only"
    V4_PREFERRED = "v4_preferred"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class AdminTarget:
    """A cluster, as an Envoy's admin interface shows it; ``interval_s`` seconds between looks."""

    host: str
    port: int
    cluster: str
    interval_s: float = 5.0


@dataclass(frozen=True, slots=True)
class Asking:
    """How to ask DNS.

    Attributes:
        server: ``ip:port`` to ask; empty for the system's resolvers.
        tcp: Whether to ask by TCP, where some servers tell more.
        hold_s: Seconds for which an address counts that is missing in an answer, for servers that
            tell only some at a time.
        interval_s: Least seconds between questions, however short the records' time to live.
    """

    server: str = ""
    tcp: bool = False
    hold_s: float = 0.0
    interval_s: float = 1.0


@dataclass(frozen=True, slots=True)
class DnsTarget:
    """The addresses of a name.

    Attributes:
        name: The name, or an IP address.
        port: Where the replicas serve.
        family: Which addresses count.
        asking: How to ask.
    """

    name: str
    port: int
    family: Family = Family.AUTO
    asking: Asking = field(default_factory=Asking)


@dataclass(frozen=True, slots=True)
class SrvTarget:
    """The SRV records of a service; see ``DnsTarget``."""

    name: str
    family: Family = Family.AUTO
    asking: Asking = field(default_factory=Asking)


@dataclass(frozen=True, slots=True)
class FileTarget:
    """A cluster in a file of Envoy's, looked at every ``interval_s`` seconds."""

    path: str
    cluster: str
    interval_s: float = 1.0


@dataclass(frozen=True, slots=True)
class EdsTarget:
    """A ``ClusterLoadAssignment`` from a control plane.

    Attributes:
        host: The control plane.
        port: The control plane.
        resource: The resource's name.
        tls: Whether to speak TLS.
        ca: File of the authorities to trust; empty for the system's.
        cert: File of our certificate; empty for none.
        key: File of its private key.
        delta: The incremental protocol rather than state of the world.
        ads: The aggregated service rather than that of endpoints alone.
        node: What we call ourselves.
    """

    host: str
    port: int
    resource: str
    tls: bool = False
    ca: str = ""
    cert: str = ""
    key: str = ""
    delta: bool = False
    ads: bool = False
    node: str = NODE


Target: TypeAlias = AdminTarget | DnsTarget | SrvTarget | FileTarget | EdsTarget
