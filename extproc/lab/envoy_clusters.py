"""Envoy's clusters for the local stack: the routers and the replicas."""

from collections.abc import Sequence
from datetime import timedelta

from betterproto2 import Message
from envoy_data_plane.envoy.config.cluster.v3 import (
    CircuitBreakers,
    CircuitBreakersThresholds,
    Cluster,
    ClusterDiscoveryType,
    LoadBalancingPolicy,
    LoadBalancingPolicyPolicy,
)
from envoy_data_plane.envoy.config.core.v3 import (
    Address,
    HealthCheck,
    HealthCheckGrpcHealthCheck,
    Http2ProtocolOptions,
    SocketAddress,
    TypedExtensionConfig,
)
from envoy_data_plane.envoy.config.endpoint.v3 import (
    ClusterLoadAssignment,
    Endpoint,
    LbEndpoint,
    LocalityLbEndpoints,
)
from envoy_data_plane.envoy.extensions.load_balancing_policies.least_request.v3 import LeastRequest
from envoy_data_plane.envoy.extensions.load_balancing_policies.override_host.v3 import (
    OverrideHost,
    OverrideHostOverrideHostSource,
)
from envoy_data_plane.envoy.extensions.upstreams.http.v3 import (
    HttpProtocolOptions,
    HttpProtocolOptionsExplicitHttpConfig,
)
from envoy_data_plane.envoy.type.metadata.v3 import MetadataKey, MetadataKeyPathSegment
from envoy_data_plane.google.protobuf import Any as AnyMessage

DESTINATION = "x-gateway-destination-endpoint"
"""Header, and key of dynamic metadata, that carries the ranked list of replicas."""

EXTPROC_SERVICE = "envoy.service.ext_proc.v3.ExternalProcessor"
REPLICAS_CLUSTER = "llm"
GATEWAYS_CLUSTER = "llm-of-a-gateway"
"""The same replicas; responses tell who served, as the endpoint-picker protocol wants it."""
MANY = 100_000


def extproc_cluster(name: str, addresses: Sequence[str]) -> Cluster:
    """The routers, by gRPC; one that its health service calls unwell gets nothing."""
    http2 = HttpProtocolOptions(
        explicit_http_config=HttpProtocolOptionsExplicitHttpConfig(
            http2_protocol_options=Http2ProtocolOptions()
        )
    )
    return Cluster(
        name=name,
        type=ClusterDiscoveryType.STATIC,
        connect_timeout=timedelta(seconds=1),
        circuit_breakers=_breakers(max_retries=None),
        health_checks=[
            HealthCheck(
                timeout=timedelta(seconds=1),
                interval=timedelta(seconds=2),
                no_traffic_interval=timedelta(seconds=2),
                unhealthy_threshold=2,
                healthy_threshold=1,
                grpc_health_check=HealthCheckGrpcHealthCheck(service_name=EXTPROC_SERVICE),
            )
        ],
        typed_extension_protocol_options={
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": AnyMessage.pack(http2)
        },
        load_assignment=_assignment(name, addresses),
    )


def replicas_cluster(
    name: str, addresses: Sequence[str], *, tells_who_served: bool = False
) -> Cluster:
    """The replicas: the router's choice where there is one, else the least busy of two.

    Args:
        name: The cluster's.
        addresses: ``ip:port`` of each.
        tells_who_served: Whether the response's metadata have who served, as a gateway's do; from
            Envoy 1.38 on.
    """
    policy = OverrideHost(
        selected_host_key=_in_metadata(f"{DESTINATION}-served") if tells_who_served else None,
        override_host_sources=[
            OverrideHostOverrideHostSource(header=DESTINATION),
            OverrideHostOverrideHostSource(metadata=_in_metadata(DESTINATION)),
        ],
        fallback_policy=_policy("envoy.load_balancing_policies.least_request", LeastRequest()),
    )
    return Cluster(
        name=name,
        type=ClusterDiscoveryType.STATIC,
        connect_timeout=timedelta(seconds=1),
        circuit_breakers=_breakers(max_retries=1000),
        load_balancing_policy=_policy("envoy.load_balancing_policies.override_host", policy),
        load_assignment=_assignment(name, addresses),
    )


def _in_metadata(key: str) -> MetadataKey:
    return MetadataKey(key="envoy.lb", path=[MetadataKeyPathSegment(key=key)])


def plain_cluster(name: str, address: str) -> Cluster:
    """One server of whatever kind, by HTTP/1.1."""
    return Cluster(
        name=name,
        type=ClusterDiscoveryType.STATIC,
        connect_timeout=timedelta(seconds=1),
        circuit_breakers=_breakers(max_retries=1000),
        load_assignment=_assignment(name, [address]),
    )


def _breakers(max_retries: int | None) -> CircuitBreakers:
    return CircuitBreakers(
        thresholds=[
            CircuitBreakersThresholds(
                max_connections=MANY,
                max_pending_requests=MANY,
                max_requests=MANY,
                max_retries=max_retries,
            )
        ]
    )


def _policy(name: str, message: Message) -> LoadBalancingPolicy:
    return LoadBalancingPolicy(
        policies=[LoadBalancingPolicyPolicy(typed_extension_config=extension(name, message))]
    )


def extension(name: str, message: Message) -> TypedExtensionConfig:
    """A named extension with its configuration."""
    return TypedExtensionConfig(name=name, typed_config=AnyMessage.pack(message))


def _assignment(cluster: str, addresses: Sequence[str]) -> ClusterLoadAssignment:
    endpoints = [
        LbEndpoint(endpoint=Endpoint(address=socket_address(address))) for address in addresses
    ]
    return ClusterLoadAssignment(
        cluster_name=cluster, endpoints=[LocalityLbEndpoints(lb_endpoints=endpoints)]
    )


def socket_address(address: str) -> Address:
    """A socket address from ``ip:port`` or ``[v6]:port``."""
    host, _, port = address.rpartition(":")
    return Address(socket_address=SocketAddress(address=host.strip("[]"), port_value=int(port)))
