"""Rules on the connection manager around the filter: its other filters, headers, limits."""

from collections.abc import Iterator
from typing import Any

from extproc.check.edits import Edit, assign, insert
from extproc.check.findings import Problem, Severity, rule
from extproc.check.layout import DESTINATION, Deployment, http_options, override_host
from extproc.check.nodes import Node

_EARLY = "type.googleapis.com/envoy.extensions.http.early_header_mutation.header_mutation.v3."
_AUTHENTICATION = (
    "JwtAuthentication",
    "ExtAuthz",
    "OAuth2",
    "RBAC",
    "BasicAuth",
    "ApiKeyAuth",
    "CredentialInjector",
    "CsrfPolicy",
    "RateLimit",
    "LocalRateLimit",
)
_SMALLEST_BUFFER = 65_536
_SMALLEST_BODY = 1_048_576
_SHORTEST_IDLE_S, _SHORTEST_STREAM_S = 60.0, 600.0


def early_mutation(headers: list[str]) -> dict[str, Any]:
    """The extension that takes headers out before any filter runs."""
    return {
        "name": "envoy.http.early_header_mutation.header_mutation",
        "typed_config": {
            "@type": _EARLY + "HeaderMutation",
            "mutations": [{"remove": header} for header in headers],
        },
    }


def choice_headers(deployment: Deployment) -> list[str]:
    """The headers by which the replicas' clusters let themselves be told a replica."""
    found = {DESTINATION: None}
    for cluster in deployment.replica_clusters:
        override = override_host(cluster)
        sources = override.at("override_host_sources").items if override else []
        found |= {header: None for source in sources if (header := source.at("header").text)}
    return list(found)


@rule(
    "client-chooses-replica",
    Severity.ERROR,
    why="Whoever sends the header picks the replica while no router answers, and can pile load on "
    "one machine.",
    cure="Remove the header by early_header_mutation_extensions of the HttpConnectionManager. "
    "On the route (request_headers_to_remove) the router's own choice would be removed too.",
)
def _client_chooses_replica(deployment: Deployment) -> Iterator[Problem]:
    if not deployment.filter.present or (deployment.pieces and not deployment.istio):
        return
    removed = {
        node.text.lower()
        for manager in deployment.managers
        for node in manager.at("early_header_mutation_extensions").walk()
        if node.key == "remove"
    } | {
        node.text.lower()
        for item in deployment.before("HeaderMutation")
        for node in item.walk()
        if node.key == "remove"
    }
    missing = [name for name in choice_headers(deployment) if name.lower() not in removed]
    if missing:
        place = deployment.entry if deployment.pieces else deployment.manager
        yield Problem(
            place.at("early_header_mutation_extensions"),
            f"clients can send {', '.join(missing)}",
            edits=() if deployment.pieces else _remove_early(deployment.manager, missing),
        )


@rule(
    "choice-removed",
    Severity.ERROR,
    why="Headers are removed behind the filters, so the router's choice goes too.",
    cure="Remove the header by early_header_mutation_extensions of the HttpConnectionManager "
    "instead.",
)
def _choice_removed(deployment: Deployment) -> Iterator[Problem]:
    places = [
        level.at("request_headers_to_remove")
        for route in deployment.routes
        for level in (route.node, *route.levels)
    ]
    for place in places:
        for item in place.items:
            if item.text.lower() == DESTINATION:
                yield Problem(item, f"request_headers_to_remove has {DESTINATION}")


@rule(
    "filter-behind-router",
    Severity.ERROR,
    why="envoy.filters.http.router ends the chain: what stands behind it never runs, and Envoy "
    "refuses the configuration.",
    cure="Put the ext_proc filter before envoy.filters.http.router.",
)
def _filter_behind_router(deployment: Deployment) -> Iterator[Problem]:
    if not deployment.pieces:
        for item in deployment.before("Router"):
            yield Problem(
                deployment.entry, f"the filter stands behind the router of line {item.line}"
            )


@rule(
    "before-authentication",
    Severity.WARNING,
    why="Requests that are going to be refused cost a decision and a booking, and strangers' "
    "prompts leave their mark in the shared state.",
    cure="Put the ext_proc filter behind the filters that authenticate and limit.",
)
def _before_authentication(deployment: Deployment) -> Iterator[Problem]:
    if not deployment.pieces:
        for item in deployment.behind(*_AUTHENTICATION):
            name = item.at("name").text
            yield Problem(deployment.entry, f"the filter runs before {name} of line {item.line}")


@rule(
    "before-decompression",
    Severity.WARNING,
    why="Each body is unpacked twice: by the router, for its own eyes, and then by Envoy.",
    cure="Put the ext_proc filter behind the decompressor.",
)
def _before_decompression(deployment: Deployment) -> Iterator[Problem]:
    for item in deployment.behind("Decompressor"):
        yield Problem(
            deployment.entry, f"the filter runs before the decompressor of line {item.line}"
        )


@rule(
    "buffer-filter-small",
    Severity.WARNING,
    why="The buffer filter answers 413 to every body above max_request_bytes; long chats and "
    "images are megabytes.",
    cure="Write max_request_bytes: 67108864.",
)
def _buffer_filter_small(deployment: Deployment) -> Iterator[Problem]:
    buffer = deployment.buffer_filter
    if buffer is None:
        return
    limit = buffer.at("typed_config", "max_request_bytes")
    if limit.number is not None and limit.number < _SMALLEST_BODY:
        edits = assign(buffer, ("typed_config", "max_request_bytes"), 67_108_864)
        yield Problem(limit, f"max_request_bytes is {limit.text}", edits=edits)


@rule(
    "buffer-limit-small",
    Severity.WARNING,
    why="The router sees so much of a prompt at most, and cannot tell prompts apart that "
    "differ only behind it; in STREAMED mode bodies stop until it answers.",
    cure="Remove per_connection_buffer_limit_bytes (Envoy's default is 1 MiB), or put the buffer "
    "filter before the ext_proc filter.",
)
def _buffer_limit_small(deployment: Deployment) -> Iterator[Problem]:
    limit = deployment.listener.at("per_connection_buffer_limit_bytes")
    if deployment.buffer_filter is None and limit.number and limit.number < _SMALLEST_BUFFER:
        edits = assign(deployment.listener, ("per_connection_buffer_limit_bytes",), 1_048_576)
        yield Problem(limit, f"per_connection_buffer_limit_bytes is {limit.text}", edits=edits)


@rule(
    "answer-cut-short",
    Severity.WARNING,
    why="A long answer takes minutes, and an unstreamed one is silent until its end: the limit "
    "cuts it, and the work of the replica is lost.",
    cure="Raise the limit, or write 0s for none.",
)
def _answer_cut_short(deployment: Deployment) -> Iterator[Problem]:
    options = ("common_http_protocol_options", "max_stream_duration")
    manager = deployment.manager
    limits = [
        (manager, ("stream_idle_timeout",), _SHORTEST_IDLE_S),
        (manager, options, _SHORTEST_STREAM_S),
    ]
    for route in deployment.routes:
        duration = ("max_stream_duration", "max_stream_duration")
        limits += [
            (route.action, ("idle_timeout",), _SHORTEST_IDLE_S),
            (route.action, duration, _SHORTEST_STREAM_S),
        ]
    clusters = [*deployment.replica_clusters, *filter(None, [deployment.router_cluster])]
    for cluster in clusters:
        limits.append((cluster, options, _SHORTEST_STREAM_S))
        limits.append((http_options(cluster), options, _SHORTEST_STREAM_S))
    for owner, path, least in limits:
        limit = owner.at(*path)
        if limit.seconds and limit.seconds < least:
            edits = assign(owner, path, "0s")
            yield Problem(limit, f"{path[-1]} is {limit.text}", edits=edits)


def _remove_early(manager: Node, headers: list[str]) -> tuple[Edit, ...]:
    extensions = manager.at("early_header_mutation_extensions")
    for extension in extensions.items:
        mutations = extension.at("typed_config", "mutations")
        if extension.at("typed_config").message == "HeaderMutation" and mutations.items:
            return tuple(
                edit
                for header in headers
                for edit in insert(mutations, len(mutations.items), {"remove": header})
            )
    if extensions.items:
        return insert(extensions, len(extensions.items), early_mutation(headers))
    return assign(manager, ("early_header_mutation_extensions",), [early_mutation(headers)])
