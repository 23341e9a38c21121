"""Rules on the two clusters: the routers' and the replicas'."""

from collections.abc import Iterator
from typing import Any

from extproc.check.edits import Edit, assign, insert, remove_field
from extproc.check.findings import Problem, Severity, rule
from extproc.check.layout import (
    DESTINATION,
    HTTP_OPTIONS,
    METADATA_NAMESPACE,
    SERVICE,
    Deployment,
    http_options,
    override_host,
)
from extproc.check.nodes import Node

LIMIT = 100_000
RETRIES = 1_000
_LEAST_REQUESTS, _LEAST_RETRIES = 10_000, 100
_REQUEST_LIMITS = ("max_connections", "max_pending_requests", "max_requests")
_OTHER_PROTOCOLS = ("auto_config", "use_downstream_protocol_config")
_POLICIES = "type.googleapis.com/envoy.extensions.load_balancing_policies."
_SERVED = ("", "liveness", "readiness", SERVICE)

HTTP2: dict[str, Any] = {
    HTTP_OPTIONS: {
        "@type": f"type.googleapis.com/{HTTP_OPTIONS}",
        "explicit_http_config": {"http2_protocol_options": {}},
    }
}
SOURCES: list[dict[str, Any]] = [
    {"header": DESTINATION},
    {"metadata": {"key": METADATA_NAMESPACE, "path": [{"key": DESTINATION}]}},
]


_FALLBACKS = {
    "ROUND_ROBIN": "round_robin.v3.RoundRobin",
    "LEAST_REQUEST": "least_request.v3.LeastRequest",
    "RANDOM": "random.v3.Random",
    "RING_HASH": "ring_hash.v3.RingHash",
    "MAGLEV": "maglev.v3.Maglev",
}


def policy(message: str, **fields: Any) -> dict[str, Any]:
    """A ``load_balancing_policy`` of one entry, such as ``random.v3.Random``."""
    name = f"envoy.load_balancing_policies.{message.partition('.')[0]}"
    typed = {"@type": _POLICIES + message, **fields}
    return {"policies": [{"typed_extension_config": {"name": name, "typed_config": typed}}]}


def follows_the_choice(cluster: Node) -> dict[str, Any]:
    """A policy that takes the router's choice, and else does what the cluster does now."""
    named = cluster.at("lb_policy").text
    now = cluster.at("load_balancing_policy").data
    fallback = now or policy(_FALLBACKS.get(named, _FALLBACKS["LEAST_REQUEST"]))
    return policy(
        "override_host.v3.OverrideHost",
        override_host_sources=SOURCES,
        fallback_policy=fallback,
    )


@rule(
    "router-cluster-missing",
    Severity.ERROR,
    why="Envoy has nobody to ask: it refuses the configuration, or every request goes unrouted.",
    cure="Add a cluster of that name with the routers' addresses, or name the one that there is.",
)
def _router_cluster_missing(deployment: Deployment) -> Iterator[Problem]:
    name = deployment.filter.at("grpc_service", "envoy_grpc", "cluster_name")
    if name.present and deployment.clusters_known and deployment.router_cluster is None:
        yield Problem(name, f"there is no cluster {name.text}")


@rule(
    "router-not-http2",
    Severity.ERROR,
    why="gRPC is HTTP/2. Envoy speaks HTTP/1.1 to a cluster unless told otherwise, and every call "
    "to the router fails.",
    cure="Give the cluster HttpProtocolOptions with explicit_http_config: "
    "{http2_protocol_options: {}}.",
)
def _router_not_http2(deployment: Deployment) -> Iterator[Problem]:
    cluster = deployment.router_cluster
    if cluster is None or cluster.at("http2_protocol_options").raw is not None:
        return
    options = http_options(cluster)
    if options.at("explicit_http_config", "http2_protocol_options").raw is not None:
        return
    if options.at("auto_config").raw is not None and cluster.at("transport_socket").present:
        return  # negotiated over TLS
    explicit: dict[str, Any] = {"http2_protocol_options": {}}
    path = ("typed_extension_protocol_options",)
    edits: tuple[Edit, ...] = ()
    if not options.present:
        edits = assign(cluster, path, HTTP2) if not cluster.at(*path).present else ()
    elif not any(options.at(name).present for name in _OTHER_PROTOCOLS):
        edits = assign(options, ("explicit_http_config",), explicit)
    yield Problem(options, "the routers' cluster does not speak HTTP/2", edits=edits)


@rule(
    "router-breaker",
    Severity.ERROR,
    why="Every response under way holds a request to the router. At Envoy's default of 1,024 "
    "requests the router is passed over, and traffic goes unrouted exactly under load.",
    cure="Set max_connections, max_pending_requests and max_requests of circuit_breakers to "
    "100000.",
)
def _router_breaker(deployment: Deployment) -> Iterator[Problem]:
    if (cluster := deployment.router_cluster) is not None:
        yield from _limits(
            cluster, ("max_pending_requests", "max_requests"), _LEAST_REQUESTS, LIMIT
        )


@rule(
    "router-health",
    Severity.WARNING,
    why="Envoy goes on asking a router that is gone, and each such request waits for the message "
    "timeout or goes unrouted.",
    cure=f"Add a grpc_health_check with service_name: {SERVICE}.",
)
def _router_health(deployment: Deployment) -> Iterator[Problem]:
    cluster = deployment.router_cluster
    if cluster is None or not cluster.at("load_assignment").present:
        return  # with EDS the control plane knows who is there
    checks = cluster.at("health_checks")
    if not checks.items:
        value = [
            {
                "timeout": "1s",
                "interval": "2s",
                "no_traffic_interval": "2s",
                "unhealthy_threshold": 2,
                "healthy_threshold": 1,
                "grpc_health_check": {"service_name": SERVICE},
            }
        ]
        edits = assign(cluster, ("health_checks",), value)
        yield Problem(checks, "the routers' cluster has no health_checks", edits=edits)
    for check in checks.items:
        service = check.at("grpc_health_check", "service_name")
        if service.text not in _SERVED:
            edits = assign(check, ("grpc_health_check", "service_name"), SERVICE)
            yield Problem(service, f"the router has no health service {service.text}", edits=edits)


@rule(
    "router-found-late",
    Severity.WARNING,
    why="Before the first request Envoy checks health once a minute: a router that starts after "
    "Envoy is left out for so long.",
    cure="Set no_traffic_interval of the health check, to 2s as interval.",
)
def _router_found_late(deployment: Deployment) -> Iterator[Problem]:
    cluster = deployment.router_cluster
    if cluster is None or not cluster.at("load_assignment").present:
        return
    for check in cluster.at("health_checks").items:
        interval = check.at("no_traffic_interval")
        if not interval.present:
            edits = assign(check, ("no_traffic_interval",), "2s")
            yield Problem(check, "the health check has no no_traffic_interval", edits=edits)


@rule(
    "no-override-host",
    Severity.ERROR,
    why="The cluster picks a replica by its own policy and never looks at the router's choice.",
    cure="Replace the cluster's lb_policy by the override_host policy of envoy/drop-in.yaml, "
    "or turn the filter off on routes to it.",
)
def _no_override_host(deployment: Deployment) -> Iterator[Problem]:
    for cluster in deployment.replica_clusters:
        if override_host(cluster) is None and not _is_original_dst(cluster):
            configured, named = cluster.at("load_balancing_policy"), cluster.at("lb_policy")
            edits = assign(cluster, ("load_balancing_policy",), follows_the_choice(cluster))
            what = "its own policy" if configured.present else named.text or "its own policy"
            name = cluster.at("name").text
            place = configured if configured.present else named
            yield Problem(place, f"cluster {name} chooses by {what}", edits=edits)


@rule(
    "lb-policy-ignored",
    Severity.WARNING,
    why="Envoy does not look at lb_policy where there is a load_balancing_policy; who reads "
    "the file is misled.",
    cure="Remove lb_policy; the fallback_policy of override_host is what counts without a choice.",
)
def _lb_policy_ignored(deployment: Deployment) -> Iterator[Problem]:
    for cluster in deployment.replica_clusters:
        named = cluster.at("lb_policy")
        if named.present and cluster.at("load_balancing_policy").present:
            yield Problem(named, f"lb_policy {named.text} is ignored", edits=remove_field(named))


@rule(
    "override-header",
    Severity.ERROR,
    why="The cluster looks for the choice where the router does not put it, and falls back always.",
    cure=f"Name the header {DESTINATION}, or the metadata {METADATA_NAMESPACE}/{DESTINATION}, in "
    "override_host_sources.",
)
def _override_header(deployment: Deployment) -> Iterator[Problem]:
    for cluster in deployment.replica_clusters:
        override = override_host(cluster)
        if override is None or _reads_the_choice(override):
            continue
        sources = override.at("override_host_sources")
        edits = insert(sources, 0, SOURCES[0]) if sources.items else ()
        named = ", ".join(item.at("header").text or "metadata" for item in sources.items)
        yield Problem(sources, f"the choice is looked for in {named or 'nothing'}", edits=edits)


@rule(
    "original-dst",
    Severity.ERROR,
    why="An ORIGINAL_DST cluster takes one address, and from a header of its own; the router sends "
    "a ranked list, with the next ones for retries.",
    cure="List the replicas in a STATIC, STRICT_DNS or EDS cluster with the override_host policy.",
)
def _original_dst(deployment: Deployment) -> Iterator[Problem]:
    for cluster in deployment.replica_clusters:
        if _is_original_dst(cluster):
            header = cluster.at("original_dst_lb_config", "http_header_name").text
            heard = header or "x-envoy-original-dst-host"
            name = cluster.at("name").text
            yield Problem(cluster.at("type"), f"cluster {name} is ORIGINAL_DST and hears {heard}")


@rule(
    "one-address-cluster",
    Severity.ERROR,
    why="LOGICAL_DNS keeps one address of a name at a time: there is nothing to choose among.",
    cure="Write type: STRICT_DNS, which has every address of the name (in Kubernetes: of a "
    "headless Service).",
)
def _one_address_cluster(deployment: Deployment) -> Iterator[Problem]:
    for cluster in deployment.replica_clusters:
        if cluster.at("type").text == "LOGICAL_DNS":
            edits = assign(cluster, ("type",), "STRICT_DNS")
            name = cluster.at("name").text
            yield Problem(cluster.at("type"), f"cluster {name} is LOGICAL_DNS", edits=edits)


@rule(
    "replica-breaker",
    Severity.WARNING,
    why="Envoy answers 503 by itself above 1,024 requests to the pool, or 1,024 that wait for a "
    "connection, whatever the replicas could take.",
    cure="Set max_connections, max_pending_requests and max_requests of circuit_breakers to "
    "100000.",
)
def _replica_breaker(deployment: Deployment) -> Iterator[Problem]:
    for cluster in deployment.replica_clusters:
        if not deployment.istio:  # which sets all limits as high as they go
            yield from _limits(cluster, _REQUEST_LIMITS, _LEAST_REQUESTS, LIMIT)


@rule(
    "retry-breaker",
    Severity.WARNING,
    why="Envoy allows 3 retries at once by default. With 6 clients and one dead replica, 7 % of "
    "requests were 503; with max_retries: 1000 none.",
    cure="Set max_retries of circuit_breakers to 1000.",
)
def _retry_breaker(deployment: Deployment) -> Iterator[Problem]:
    for cluster in deployment.replica_clusters:
        budget = _threshold(cluster).at("retry_budget")
        if not budget.present and not deployment.istio:
            yield from _limits(cluster, ("max_retries",), _LEAST_RETRIES, RETRIES)


def _limits(cluster: Node, names: tuple[str, ...], least: int, value: int) -> Iterator[Problem]:
    threshold = _threshold(cluster)
    low = [name for name in names if (threshold.at(name).number or 0) < least]
    if not low:
        return
    set_now = [name for name in low if threshold.at(name).present]
    message = (
        f"{', '.join(f'{name} is {threshold.at(name).text}' for name in set_now)}"
        if set_now
        else f"cluster {cluster.at('name').text} has Envoy's default for {', '.join(low)}"
    )
    if threshold.present:
        edits = tuple(edit for name in low for edit in assign(threshold, (name,), value))
    else:
        wanted = [dict.fromkeys(low, value)]
        edits = assign(cluster, ("circuit_breakers", "thresholds"), wanted)
    place = threshold.at(set_now[0]) if set_now else threshold
    yield Problem(place, message, edits=edits)


def _threshold(cluster: Node) -> Node:
    """The thresholds of ordinary requests."""
    thresholds = cluster.at("circuit_breakers", "thresholds")
    for item in thresholds.items:
        if item.at("priority").text in ("", "DEFAULT"):
            return item
    return thresholds.at("(none)")


def _reads_the_choice(override: Node) -> bool:
    for source in override.at("override_host_sources").items:
        metadata = source.at("metadata")
        path = [item.at("key").text for item in metadata.at("path").items]
        if source.at("header").text.lower() == DESTINATION:
            return True
        if metadata.at("key").text == METADATA_NAMESPACE and path == [DESTINATION]:
            return True
    return False


def _is_original_dst(cluster: Node) -> bool:
    return cluster.at("type").text == "ORIGINAL_DST"
