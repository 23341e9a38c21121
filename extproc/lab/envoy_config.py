"""Envoy's bootstrap for the local stack, built from typed messages.

It follows the recommended deployment: the router fails open, clients cannot choose a replica
themselves, circuit breakers do not get in the way, and a failed first choice is retried on the next
address of the ranked list.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from betterproto2 import Message
from envoy_data_plane.envoy.config.bootstrap.v3 import (
    Admin,
    Bootstrap,
    BootstrapStaticResources,
)
from envoy_data_plane.envoy.config.common.mutation_rules.v3 import HeaderMutation as Mutation
from envoy_data_plane.envoy.config.core.v3 import (
    GrpcService,
    GrpcServiceEnvoyGrpc,
    HeaderValue,
    HeaderValueOption,
    Http1ProtocolOptions,
)
from envoy_data_plane.envoy.config.listener.v3 import Filter, FilterChain, Listener
from envoy_data_plane.envoy.config.route.v3 import (
    HeaderMatcher,
    RetryPolicy,
    Route,
    RouteAction,
    RouteConfiguration,
    RouteMatch,
    VirtualHost,
)
from envoy_data_plane.envoy.extensions.filters.http.buffer.v3 import Buffer, BufferPerRoute
from envoy_data_plane.envoy.extensions.filters.http.ext_proc.v3 import (
    ExternalProcessor,
    ExtProcOverrides,
    ExtProcPerRoute,
    MetadataOptions,
    MetadataOptionsMetadataNamespaces,
    ProcessingMode,
    ProcessingModeBodySendMode,
    ProcessingModeHeaderSendMode,
)
from envoy_data_plane.envoy.extensions.filters.http.router.v3 import Router
from envoy_data_plane.envoy.extensions.filters.network.http_connection_manager.v3 import (
    HttpConnectionManager,
    HttpConnectionManagerUpgradeConfig,
    HttpFilter,
)
from envoy_data_plane.envoy.extensions.http.early_header_mutation.header_mutation.v3 import (
    HeaderMutation,
)
from envoy_data_plane.google.protobuf import Any as AnyMessage

from extproc.lab.envoy_clusters import (
    DESTINATION,
    GATEWAYS_CLUSTER,
    REPLICAS_CLUSTER,
    extension,
    extproc_cluster,
    plain_cluster,
    replicas_cluster,
    socket_address,
)
from extproc.processing.events import BodyMode

LONGEST_BODY = 2**26
"""Bytes of the longest body that Envoy can try again."""

_EXT_PROC = "envoy.filters.http.ext_proc"
_BUFFER = "envoy.filters.http.buffer"

_REQUEST_ATTRIBUTES = ["xds.cluster_name", "xds.route_name"]
_RESPONSE_ATTRIBUTES = [
    "upstream.address",
    "upstream.request_attempt_count",
    "response.code_details",
    "response.flags",
]

_BODY_MODES = {
    BodyMode.NONE: ProcessingModeBodySendMode.NONE,
    BodyMode.BUFFERED: ProcessingModeBodySendMode.BUFFERED,
    BodyMode.BUFFERED_PARTIAL: ProcessingModeBodySendMode.BUFFERED_PARTIAL,
    BodyMode.STREAMED: ProcessingModeBodySendMode.STREAMED,
    BodyMode.FULL_DUPLEX_STREAMED: ProcessingModeBodySendMode.FULL_DUPLEX_STREAMED,
}


@dataclass(frozen=True, slots=True)
class RouteOverride:
    """Settings of one route, over those of its listener.

    Attributes:
        prefix: The path prefix that the route matches.
        metadata: ``x-prefix-*`` settings.
        disabled: Whether the route bypasses the router altogether.
    """

    prefix: str
    metadata: Mapping[str, str] = field(default_factory=dict)
    disabled: bool = False


@dataclass(frozen=True, slots=True)
class ListenerConfig:
    """One listener: one configuration of the router's filter before the same replicas.

    It speaks HTTP/1.1 and HTTP/2 (with prior knowledge).

    Attributes:
        name: Unique; the key of ``LocalStack.url``.
        body_mode: How bodies reach the router. STREAMED comes with
            ``send_body_without_waiting_for_header_response``.
        response_body_mode: How bodies of responses do.
        attributes: Whether Envoy tells what it knows of the request and of who served it.
        metadata: ``x-prefix-*`` settings, sent as gRPC initial metadata. ``x-prefix-replicas``
            is added unless it is here or ``static_replicas`` is False.
        static_replicas: See ``metadata``.
        routes: Overrides for some paths; everything else takes the listener's settings.
        before: Further filters before the router's.
        router: The number of the one router to use; None uses all of them.
        filter: False leaves the router's filter out: Envoy alone.
        cluster: Where requests go; ``GATEWAYS_CLUSTER`` is there for who names it.
        retry: Whether the route has a retry policy.
        retry_on: What is tried again, in Envoy's words.
        try_idle_timeout_s: Seconds without a byte after which a try has failed; 0 waits for ever.
        whole_body: Whether Envoy collects a body before it asks the router. Without it and with a
            retry policy, Envoy sends a body's first part twice where a router dies while the body
            comes in, or where trailers follow it (but for BUFFERED).
        buffer_limit: ``per_connection_buffer_limit_bytes``; None takes Envoy's 1 MiB.
        body_limit: Bytes of a body that Envoy keeps, for a retry or for the router, instead of
            ``buffer_limit``; None leaves it at that.
        message_timeout_s: How long Envoy waits for the router's answer to each message.
        failure_mode_allow: Whether Envoy goes on alone where the router fails.
        timeout_s: The route's timeout; 0 has none.
        response_headers: Headers to add to each response; format strings of Envoy, so that they
            can tell what it knows of the request.
    """

    name: str
    body_mode: BodyMode = BodyMode.BUFFERED_PARTIAL
    response_body_mode: BodyMode = BodyMode.NONE
    attributes: bool = True
    metadata: Mapping[str, str] = field(default_factory=dict)
    static_replicas: bool = True
    routes: Sequence[RouteOverride] = ()
    before: Sequence[HttpFilter] = ()
    router: int | None = None
    filter: bool = True
    cluster: str = REPLICAS_CLUSTER
    retry: bool = True
    retry_on: str = "connect-failure,refused-stream,reset"
    try_idle_timeout_s: float = 0.0
    whole_body: bool = False
    buffer_limit: int | None = None
    body_limit: int | None = LONGEST_BODY
    message_timeout_s: float = 1.0
    failure_mode_allow: bool = True
    timeout_s: float = 0.0
    response_headers: Mapping[str, str] = field(default_factory=dict)


def bootstrap(
    listeners: Mapping[int, ListenerConfig],
    *,
    admin_port: int,
    routers: Sequence[str],
    replicas: Sequence[str],
    others: Mapping[str, str] | None = None,
) -> Bootstrap:
    """The whole configuration.

    Args:
        listeners: By port on 127.0.0.1.
        admin_port: Envoy's admin interface, on 127.0.0.1.
        routers: ``ip:port`` of each router.
        replicas: ``ip:port`` of each replica.
        others: Further clusters that listeners may name, each with its one ``ip:port``.
    """
    clusters = [extproc_cluster(_cluster_name(None), routers)]
    clusters += [
        extproc_cluster(_cluster_name(number), [address]) for number, address in enumerate(routers)
    ]
    clusters.append(replicas_cluster(REPLICAS_CLUSTER, replicas))
    if any(config.cluster == GATEWAYS_CLUSTER for config in listeners.values()):
        clusters.append(replicas_cluster(GATEWAYS_CLUSTER, replicas, tells_who_served=True))
    clusters += [plain_cluster(name, address) for name, address in (others or {}).items()]
    return Bootstrap(
        admin=Admin(address=socket_address(f"127.0.0.1:{admin_port}")),
        static_resources=BootstrapStaticResources(
            listeners=[
                _listener(config, port, replicas) for port, config in sorted(listeners.items())
            ],
            clusters=clusters,
        ),
    )


def to_json(message: Message) -> str:
    """A message as the JSON that Envoy reads from a file."""
    return json.dumps(message.to_dict(), indent=2)


def external_processor(config: ListenerConfig, replicas: Sequence[str]) -> ExternalProcessor:
    """The router's filter for one listener."""
    metadata = dict(config.metadata)
    if config.static_replicas:
        metadata.setdefault("x-prefix-replicas", ",".join(replicas))
    streamed = config.body_mode is BodyMode.STREAMED
    duplex = config.body_mode is BodyMode.FULL_DUPLEX_STREAMED
    send = ProcessingModeHeaderSendMode.SEND
    return ExternalProcessor(
        grpc_service=GrpcService(
            envoy_grpc=GrpcServiceEnvoyGrpc(cluster_name=_cluster_name(config.router)),
            initial_metadata=_header_values(metadata),
        ),
        failure_mode_allow=config.failure_mode_allow,
        message_timeout=timedelta(seconds=config.message_timeout_s),
        metadata_options=MetadataOptions(
            receiving_namespaces=MetadataOptionsMetadataNamespaces(
                untyped=["envoy.lb", "prefix_extproc"]
            ),
            forwarding_namespaces=MetadataOptionsMetadataNamespaces(
                untyped=["envoy.lb", "envoy.lb.subset_hint"]
            ),
        ),
        processing_mode=ProcessingMode(
            request_header_mode=send,
            request_body_mode=_BODY_MODES[config.body_mode],
            response_body_mode=_BODY_MODES[config.response_body_mode],
            # Envoy demands it of full duplex, where trailers may carry the end of the stream.
            request_trailer_mode=send if duplex else ProcessingModeHeaderSendMode.DEFAULT,
            response_header_mode=send,
            # Keeps the gRPC stream open to the end of the response: the reservation's end.
            response_trailer_mode=send,
        ),
        send_body_without_waiting_for_header_response=streamed,
        # Or the buffered modes hold back upgrades, and refuse large bodies that nobody reads.
        allow_mode_override=True,
        request_attributes=_REQUEST_ATTRIBUTES if config.attributes else [],
        response_attributes=_RESPONSE_ATTRIBUTES if config.attributes else [],
    )


def _cluster_name(router: int | None) -> str:
    return "extproc" if router is None else f"extproc-{router}"


def _listener(config: ListenerConfig, port: int, replicas: Sequence[str]) -> Listener:
    filters = [http_filter("envoy.filters.http.router", Router())]
    if config.filter:
        filters.insert(0, http_filter(_EXT_PROC, external_processor(config, replicas)))
    filters = [*config.before, *filters]
    if config.whole_body:
        filters.insert(0, http_filter(_BUFFER, Buffer(max_request_bytes=LONGEST_BODY)))
    manager = HttpConnectionManager(
        stat_prefix=config.name,
        early_header_mutation_extensions=[
            extension(
                "envoy.http.early_header_mutation.header_mutation",
                HeaderMutation(mutations=[Mutation(remove=DESTINATION)]),
            )
        ],
        # Envoy would end a request whose client or replica is silent for five minutes.
        stream_idle_timeout=timedelta(0),
        http_protocol_options=Http1ProtocolOptions(enable_trailers=True),
        upgrade_configs=[HttpConnectionManagerUpgradeConfig(upgrade_type="websocket")],
        route_config=RouteConfiguration(
            name=config.name,
            virtual_hosts=[
                VirtualHost(
                    name="all",
                    domains=["*"],
                    routes=_routes(config),
                    response_headers_to_add=[
                        HeaderValueOption(header=HeaderValue(key=name, value=value))
                        for name, value in config.response_headers.items()
                    ],
                )
            ],
        ),
        http_filters=filters,
    )
    return Listener(
        name=config.name,
        address=socket_address(f"127.0.0.1:{port}"),
        per_connection_buffer_limit_bytes=config.buffer_limit,
        filter_chains=[
            FilterChain(
                filters=[
                    Filter(
                        name="envoy.filters.network.http_connection_manager",
                        typed_config=AnyMessage.pack(manager),
                    )
                ]
            )
        ],
    )


def http_filter(name: str, message: Message) -> HttpFilter:
    """A filter of a listener."""
    return HttpFilter(name=name, typed_config=AnyMessage.pack(message))


def _routes(config: ListenerConfig) -> list[Route]:
    overrides = [*config.routes, RouteOverride("/")]
    routes = [_route(config, override) for override in overrides]
    if config.whole_body:  # an upgrade has no end that could be waited for
        routes = [_route(config, override, upgrade=True) for override in overrides] + routes
    return routes


def _route(config: ListenerConfig, override: RouteOverride, *, upgrade: bool = False) -> Route:
    prefix, per_filter = override.prefix, {}
    if override.disabled:
        per_filter[_EXT_PROC] = AnyMessage.pack(ExtProcPerRoute(disabled=True))
    elif override.metadata:
        overrides = ExtProcOverrides(grpc_initial_metadata=_header_values(override.metadata))
        per_filter[_EXT_PROC] = AnyMessage.pack(ExtProcPerRoute(overrides=overrides))
    if upgrade:
        per_filter[_BUFFER] = AnyMessage.pack(BufferPerRoute(disabled=True))
    upgrades = [HeaderMatcher(name="upgrade", present_match=True)]
    idle_s = config.try_idle_timeout_s
    retry = RetryPolicy(
        retry_on=config.retry_on,
        num_retries=2,
        per_try_idle_timeout=timedelta(seconds=idle_s) if idle_s else None,
    )
    return Route(
        name=f"{config.name}{prefix}{' upgrade' if upgrade else ''}",
        match=RouteMatch(prefix=prefix, headers=upgrades if upgrade else []),
        request_body_buffer_limit=config.body_limit,  # or retries of bodies over 1 MiB fail
        route=RouteAction(
            cluster=config.cluster,
            timeout=timedelta(seconds=config.timeout_s),
            retry_policy=retry if config.retry else None,
        ),
        typed_per_filter_config=per_filter,
    )


def _header_values(metadata: Mapping[str, str]) -> list[HeaderValue]:
    # Envoy reads the values as format strings, in which a percent sign is written twice.
    return [HeaderValue(key=key, value=value.replace("%", "%%")) for key, value in metadata.items()]
