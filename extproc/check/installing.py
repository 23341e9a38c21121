"""Puts the router's filter and cluster into an Envoy configuration."""

from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from ipaddress import ip_address
from typing import Any

from extproc.check.checking import mend
from extproc.check.cluster_rules import HTTP2, LIMIT
from extproc.check.edits import Edit, apply, assign, insert
from extproc.check.filter_rules import (
    MESSAGE_TIMEOUT,
    OTHER_RESPONSE_ATTRIBUTES,
    REQUEST_ATTRIBUTES,
)
from extproc.check.layout import SERVICE, Layout, Route, is_marked, runs
from extproc.check.mode_rules import BUFFER_FILTER, BUFFER_OFF
from extproc.check.nodes import Node, Source, read

ROUTER_CLUSTER = "prefix-extproc"
_FILTER = "envoy.filters.http.ext_proc"
_TYPES = "type.googleapis.com/envoy.extensions.filters.http.ext_proc.v3."
_OFF = {"@type": _TYPES + "ExtProcPerRoute", "disabled": True}
_ROUNDS = 100


class InstallError(Exception):
    """The configuration has no place for the filter. The message says why, and what to do."""


def install(
    texts: Mapping[str, str], *, replicas: str, routers: Sequence[tuple[str, int]], mode: str
) -> dict[str, str]:
    """The files with the router put in, and with what ``check`` would mend mended.

    A second time changes nothing.

    Args:
        texts: The files' texts by path; together one configuration.
        replicas: The cluster whose replicas the router chooses among; empty if there is only one.
        routers: Host and port of each router.
        mode: ``enforce`` or ``shadow``.

    Raises:
        InstallError: If there is no such cluster, or no route to it.
        UnreadableError: If a file is no YAML or JSON.
    """
    changed = dict(texts)
    name = replicas or _only_cluster(_layout(changed))
    for _ in range(_ROUNDS):
        layout = _layout(changed)
        edits = next(_edits(layout, _managers(layout, name), name, routers, mode), None)
        if edits is None:
            mended = mend(changed)
            if mended == changed:
                break
            changed = mended
        for edit in edits or ():
            changed[edit.path] = apply(changed[edit.path], [edit])
    return changed


def _layout(texts: Mapping[str, str]) -> Layout:
    return Layout(node for path, text in texts.items() for node in read(Source(path, text)))


def _edits(
    layout: Layout,
    managers: list[Node],
    name: str,
    routers: Sequence[tuple[str, int]],
    mode: str,
) -> Iterator[tuple[Edit, ...]]:
    """What is left to be put in, one thing at a time."""
    for manager in managers:
        entry = _entry(manager)
        if entry is None:
            yield _insert_filter(manager, mode)
            return
        for route in layout.all_routes(manager):
            if name not in route.clusters:
                yield from _turn_off(manager, entry, route)
    called = {_called(manager) for manager in managers} & {ROUTER_CLUSTER}
    if called and ROUTER_CLUSTER not in layout.clusters:
        clusters = layout.clusters[name].parent
        if clusters is None or not clusters.is_sequence:
            raise InstallError(
                f"the cluster {name} stands in no list: add the routers' cluster by hand"
            )
        yield insert(clusters, len(clusters.items), router_cluster(routers))


def _managers(layout: Layout, name: str) -> list[Node]:
    """The connection managers that route to a cluster."""
    if name not in layout.clusters:
        known = [each for each in layout.clusters if each != ROUTER_CLUSTER]
        near = get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known) or 'none'}"
        raise InstallError(f"no cluster {name} in these files: {hint}")
    found = [
        manager
        for manager in layout.managers
        if any(name in route.clusters for route in layout.all_routes(manager))
    ]
    if not found:
        raise InstallError(
            f"no route to {name} in these files: give the file with the listener and its routes too"
        )
    return found


def _only_cluster(layout: Layout) -> str:
    names = {
        name
        for manager in layout.managers
        for route in layout.all_routes(manager)
        for name in route.clusters
    }
    if len(names) == 1:
        return names.pop()
    if not names:
        raise InstallError("there is no route to a cluster in these files")
    known = ", ".join(sorted(names))
    raise InstallError(f"name the cluster of the model servers by --cluster; there are {known}")


def _entry(manager: Node) -> Node | None:
    """The router's filter, if the manager has it."""
    for item in manager.at("http_filters").items:
        typed = item.at("typed_config")
        if typed.message == "ExternalProcessor" and is_marked(typed):
            return item
    return None


def _called(manager: Node) -> str:
    entry = _entry(manager)
    path = ("typed_config", "grpc_service", "envoy_grpc", "cluster_name")
    return entry.at(*path).text if entry is not None else ""


def _insert_filter(manager: Node, mode: str) -> tuple[Edit, ...]:
    filters = manager.at("http_filters")
    messages = [item.at("typed_config").message for item in filters.items]
    names = [item.at("name").text for item in filters.items]
    place = messages.index("Router") if "Router" in messages else len(messages)
    name = ROUTER_CLUSTER if _FILTER in names else _FILTER
    edits = insert(filters, place, external_processor(name, mode))
    if not edits:
        raise InstallError(
            f"http_filters in line {filters.line} cannot be added to: put its first item on a line "
            "of its own"
        )
    return edits


def _turn_off(manager: Node, entry: Node, route: Route) -> Iterator[tuple[Edit, ...]]:
    """Keep the filter, and its buffer filter, from a route to something else."""
    name = entry.at("name").text
    if runs(entry, route):
        yield assign(route.node, ("typed_per_filter_config", name), _OFF)
    place = int(entry.key)
    before = manager.at("http_filters").items[place - 1 : place]
    if before and before[0].data == BUFFER_FILTER:  # another one is somebody else's
        buffer = before[0].at("name").text
        if not route.per_filter(buffer).present:
            yield assign(route.node, ("typed_per_filter_config", buffer), BUFFER_OFF)


def external_processor(name: str, mode: str) -> dict[str, Any]:
    """The router's entry of ``http_filters``."""
    return {
        "name": name,
        "typed_config": {
            "@type": _TYPES + "ExternalProcessor",
            "grpc_service": {
                "envoy_grpc": {"cluster_name": ROUTER_CLUSTER},
                "initial_metadata": [
                    {"key": "x-prefix-strategy", "value": "kv_aware"},
                    {"key": "x-prefix-mode", "value": mode},
                ],
            },
            "failure_mode_allow": True,
            "message_timeout": MESSAGE_TIMEOUT,
            "allow_mode_override": True,
            "processing_mode": {
                "request_header_mode": "SEND",
                "request_body_mode": "BUFFERED_PARTIAL",
                "response_header_mode": "SEND",
                "response_trailer_mode": "SEND",
            },
            "request_attributes": list(REQUEST_ATTRIBUTES),
            "response_attributes": ["upstream.address", *OTHER_RESPONSE_ATTRIBUTES],
            "metadata_options": {
                "forwarding_namespaces": {"untyped": ["envoy.lb", "envoy.lb.subset_hint"]},
                "receiving_namespaces": {"untyped": ["envoy.lb", "prefix_extproc"]},
            },
        },
    }


def router_cluster(routers: Sequence[tuple[str, int]]) -> dict[str, Any]:
    """The routers' cluster."""
    endpoints = [
        {"endpoint": {"address": {"socket_address": {"address": host, "port_value": port}}}}
        for host, port in routers
    ]
    return {
        "name": ROUTER_CLUSTER,
        "type": "STATIC" if all(_is_address(host) for host, _ in routers) else "STRICT_DNS",
        "connect_timeout": "1s",
        "circuit_breakers": {
            "thresholds": [
                {"max_connections": LIMIT, "max_pending_requests": LIMIT, "max_requests": LIMIT}
            ]
        },
        "health_checks": [
            {
                "timeout": "1s",
                "interval": "2s",
                "no_traffic_interval": "2s",
                "unhealthy_threshold": 2,
                "healthy_threshold": 1,
                "grpc_health_check": {"service_name": SERVICE},
            }
        ],
        "typed_extension_protocol_options": HTTP2,
        "load_assignment": {
            "cluster_name": ROUTER_CLUSTER,
            "endpoints": [{"lb_endpoints": endpoints}],
        },
    }


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
