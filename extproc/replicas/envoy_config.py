"""Finding a cluster's hosts in an Envoy's bootstrap, CDS or EDS file. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

from envoy.config.cluster.v3 import cluster_pb2
from envoy.config.endpoint.v3 import endpoint_pb2
from google.protobuf import json_format

from extproc.replicas.assignment import Host, hosts_of
from extproc.replicas.endpoint import SourceError
from extproc.replicas.target import NODE, EdsTarget, Family

_CLUSTER = "envoy.config.cluster.v3.Cluster"
_ASSIGNMENT = "envoy.config.endpoint.v3.ClusterLoadAssignment"
_NEEDED = ("name", "type", "load_assignment", "dns_lookup_family")
_KINDS = {number: name for name, number in cluster_pb2.Cluster.DiscoveryType.items()}
_FAMILIES = {
    number: Family(name.lower()) for name, number in cluster_pb2.Cluster.DnsLookupFamily.items()
}

Json: TypeAlias = Mapping[str, Any]


class Hosts(NamedTuple):
    """Hosts that the configuration itself lists.

    Attributes:
        hosts: They.
        family: How their names are resolved; None where they have IP addresses.
    """

    hosts: list[Host]
    family: Family | None


class InFile(NamedTuple):
    """Something that another file tells.

    Attributes:
        path: The file.
        name: Of the cluster or the assignment in it.
    """

    path: str
    name: str


Place: TypeAlias = Hosts | InFile | EdsTarget


def find(config: Any, name: str) -> Place:
    """Where a cluster's hosts are.

    Args:
        config: A file's content: a ``Bootstrap``, or a ``DiscoveryResponse`` of clusters or
            assignments, with names in snake_case or camelCase.
        name: The cluster's, or the assignment's.

    Raises:
        SourceError: The cluster is not there, or of a kind that lists no hosts.
    """
    if not isinstance(config, Mapping):
        raise SourceError("this is no configuration of Envoy's: a mapping is wanted")
    assignment = next(_resources(config, _ASSIGNMENT, "cluster_name", name), None)
    if assignment is not None:
        message = _parsed(assignment, endpoint_pb2.ClusterLoadAssignment())
        return Hosts(list(hosts_of(message)), None)
    cluster = next(_clusters(config, name), None)
    if cluster is not None:
        return _place(config, cluster, name)
    path = _path(_get(_get(config, "dynamic_resources"), "cds_config"))
    if path:
        return InFile(path, name)
    known = [_text(each, "name") for each in _list(_get(config, "static_resources"), "clusters")]
    there = f"there are {', '.join(known)}" if known else "there is none"
    raise SourceError(f"no cluster {name!r}: {there}")


def _place(config: Json, cluster: Json, name: str) -> Place:
    message = _parsed({key: _get(cluster, key) for key in _NEEDED}, cluster_pb2.Cluster())
    kind = _KINDS.get(message.type, f"of type {message.type}")
    if _get(cluster, "cluster_type") or kind not in {"STATIC", "STRICT_DNS", "EDS"}:
        kind = _text(_get(cluster, "cluster_type"), "name") or kind
        raise SourceError(f"cluster {name!r} is {kind}: use STATIC, STRICT_DNS or EDS")
    if kind == "EDS":
        return _eds(config, _get(cluster, "eds_cluster_config"), name)
    family = _FAMILIES.get(message.dns_lookup_family) if kind == "STRICT_DNS" else None
    return Hosts(list(hosts_of(message.load_assignment)), family)


def _eds(config: Json, eds: Json, cluster: str) -> Place:
    name = _text(eds, "service_name") or cluster
    source = _get(eds, "eds_config")
    path = _path(source)
    if path:
        return InFile(path, name)
    ads = isinstance(source, Mapping) and "ads" in source
    api = _get(_get(config, "dynamic_resources"), "ads_config") if ads else None
    api = api or _get(source, "api_config_source")
    kind = _text(api, "api_type")
    if kind not in {"GRPC", "DELTA_GRPC", "AGGREGATED_GRPC", "AGGREGATED_DELTA_GRPC"}:
        raise SourceError(f"the EDS of cluster {cluster!r} is neither a file nor gRPC")
    host, port = _control_plane(config, api)
    node = _text(_get(config, "node"), "id") or NODE
    return EdsTarget(host, port, name, delta="DELTA" in kind, ads=ads, node=node)


def _control_plane(config: Json, api: Json) -> tuple[str, int]:
    service = next(iter(_list(api, "grpc_services")), {})
    name = _text(_get(service, "envoy_grpc"), "cluster_name")
    for cluster in _clusters(config, name):
        if _get(cluster, "transport_socket"):
            raise SourceError(
                f"control plane {name!r} has TLS: name it as eds+tls://host:port/name"
            )
        place = _place(config, cluster, name)
        if isinstance(place, Hosts) and place.hosts:
            return place.hosts[0].host, place.hosts[0].port
    raise SourceError(f"the address of the control plane {name!r} is not in this file")


def _clusters(config: Json, name: str) -> Iterator[Json]:
    for cluster in _list(_get(config, "static_resources"), "clusters"):
        if cluster.get("name") == name:
            yield cluster
    yield from _resources(config, _CLUSTER, "name", name)


def _resources(config: Json, kind: str, key: str, name: str) -> Iterator[Json]:
    for resource in _list(config, "resources"):
        inner = _get(resource, "resource") or resource  # of a wrapper with version and name
        if _text(inner, "@type").endswith(f"/{kind}") and _text(inner, key) == name:
            yield {field: value for field, value in inner.items() if field != "@type"}


def _path(source: Json) -> str:
    return _text(source, "path") or _text(_get(source, "path_config_source"), "path")


def _get(mapping: Any, key: str) -> Any:
    """A field by its name, in either spelling; an empty mapping where it is not there."""
    if not isinstance(mapping, Mapping):
        return {}
    first, *rest = key.split("_")
    camel = first + "".join(word.capitalize() for word in rest)
    return mapping.get(key) or mapping.get(camel) or {}


def _text(mapping: Any, key: str) -> str:
    value = _get(mapping, key)
    return value if isinstance(value, str) else ""


def _list(mapping: Any, key: str) -> list[Json]:
    value = _get(mapping, key)
    items = value if isinstance(value, list) else []
    return [each for each in items if isinstance(each, Mapping)]


def _parsed(value: Json, message: Any) -> Any:
    given = {key: each for key, each in value.items() if each != {}}
    try:
        return json_format.ParseDict(_plain(given), message, ignore_unknown_fields=True)
    except json_format.ParseError as error:
        raise SourceError(f"Envoy would not read this: {str(error)[:300]}") from None


def _plain(value: Any) -> Any:
    """Without what may be of types that this server does not know."""
    if isinstance(value, Mapping):
        return {
            str(key): _plain(each)
            for key, each in value.items()
            if key not in {"typed_filter_metadata", "typedFilterMetadata"}
        }
    return [_plain(each) for each in value] if isinstance(value, list) else value
