"""Reading Envoy's ``ClusterLoadAssignment``. Pure."""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from envoy.config.core.v3.health_check_pb2 import HealthStatus

from extproc.processing.wire import canonical_address
from extproc.replicas.endpoint import Endpoint, SourceError

UNFIT = frozenset(map(HealthStatus.Value, ("UNHEALTHY", "DRAINING", "TIMEOUT", "DEGRADED")))
"""How the hosts are that Envoy sends nothing to while it has others."""


class Host(NamedTuple):
    """An entry of an assignment, before its name is resolved.

    Attributes:
        host: An IP address, or a name in a STRICT_DNS cluster.
        port: Where it serves.
        as_endpoint: What else is told of it; the address is empty.
    """

    host: str
    port: int
    as_endpoint: Endpoint


def hosts_of(assignment: Any) -> Iterator[Host]:
    """The hosts of a ``ClusterLoadAssignment``; those on pipes or of Envoy's own are left out."""
    for group in assignment.endpoints:
        zone = zone_of(group.locality.region, group.locality.zone)
        for each in group.lb_endpoints:
            if each.WhichOneof("host_identifier") == "endpoint_name":
                endpoint = assignment.named_endpoints[each.endpoint_name]
            else:
                endpoint = each.endpoint
            address = endpoint.address
            if address.WhichOneof("address") != "socket_address":
                continue
            yield Host(
                address.socket_address.address,
                address.socket_address.port_value,
                Endpoint(
                    "",
                    zone,
                    each.load_balancing_weight.value or 1,
                    group.priority,
                    each.health_status not in UNFIT,
                ),
            )


def numeric(hosts: Iterable[Host]) -> list[Endpoint]:
    """The endpoints of hosts that have IP addresses.

    Raises:
        SourceError: One has a name instead.
    """
    endpoints = []
    for host, port, endpoint in hosts:
        address = address_of(host, port)
        if not address:
            raise SourceError(
                f"{host[:100]!r} with port {port} is no address: "
                "an IP address and a port from 1 to 65535 are wanted"
            )
        endpoints.append(endpoint._replace(address=address))
    return endpoints


def address_of(host: str, port: int) -> str:
    """The canonical address, or an empty string where the host is no IP address."""
    return canonical_address(f"[{host}]:{port}" if ":" in host else f"{host}:{port}")


def zone_of(region: str, zone: str) -> str:
    """The zone by which replicas are near each other; the region where no zone is told."""
    return zone or region
