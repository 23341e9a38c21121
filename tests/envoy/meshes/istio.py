"""What istiod makes of EnvoyFilters."""

from typing import Any

from tests.envoy.meshes import bootstrap, http2, merge, router_filter

_HIGH = 4_294_967_295
ROUTERS = "outbound|9002||prefix-extproc.prefix-extproc.svc.cluster.local"
REPLICAS = "outbound|8000||vllm.models.svc.cluster.local"


def generated(resources: list[dict[str, Any]], context: str) -> dict[str, Any]:
    """A proxy's configuration with all patches of that context applied."""
    retries = next(
        each["spec"]["trafficPolicy"]["connectionPool"]["http"]["maxRetries"]
        for each in resources
        if each["kind"] == "DestinationRule"
    )
    route = next(each for each in resources if each["kind"] == "VirtualService")["spec"]["http"][0]
    manager: dict[str, Any] = {
        "stat_prefix": "outbound",
        "route_config": {
            "virtual_hosts": [
                {"name": "llm", "domains": ["*"], "routes": [_route(str(route["name"]))]}
            ]
        },
        "http_filters": [router_filter()],
    }
    clusters = {
        ROUTERS: _cluster(ROUTERS, _HIGH) | {"typed_extension_protocol_options": http2()},
        REPLICAS: _cluster(REPLICAS, retries),
    }
    for resource in resources:
        if resource["kind"] == "EnvoyFilter":
            for patch in resource["spec"]["configPatches"]:
                assert patch["match"]["context"] == context
                manager = _patch(manager, clusters, patch)
    return bootstrap(manager, {}, list(clusters.values()))


def _patch(
    manager: dict[str, Any], clusters: dict[str, dict[str, Any]], patch: dict[str, Any]
) -> dict[str, Any]:
    match, operation = patch["match"], patch["patch"]["operation"]
    value = patch["patch"]["value"]
    host = manager["route_config"]["virtual_hosts"][0]
    match patch["applyTo"], operation:
        case "NETWORK_FILTER", "MERGE":
            manager = merge(manager, value["typed_config"])
        case "HTTP_FILTER", "INSERT_BEFORE":
            names = [each["name"] for each in manager["http_filters"]]
            before = match["listener"]["filterChain"]["filter"]["subFilter"]["name"]
            manager["http_filters"].insert(names.index(before), value)
        case "HTTP_ROUTE", "MERGE":
            name = match["routeConfiguration"]["vhost"]["route"]["name"]
            host["routes"] = [
                merge(each, value) if each["name"] == name else each for each in host["routes"]
            ]
        case "CLUSTER", "MERGE":
            name = f"outbound|{match['cluster']['portNumber']}||{match['cluster']['service']}"
            clusters[name] = merge(clusters[name], value)
        case other:
            raise AssertionError(other)
    return manager


def _route(name: str) -> dict[str, Any]:
    """As istiod writes one, with its own retries."""
    predicate = {
        "name": "envoy.retry_host_predicates.previous_hosts",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.retry.host.previous_hosts.v3."
            "PreviousHostsPredicate"
        },
    }
    retries = {
        "retry_on": "connect-failure,refused-stream,unavailable,cancelled,retriable-status-codes",
        "num_retries": 2,
        "retry_host_predicate": [predicate],
        "host_selection_retry_max_attempts": 5,
        "retriable_status_codes": [503],
    }
    action = {"cluster": REPLICAS, "timeout": "0s", "retry_policy": retries}
    return {"name": name, "match": {"prefix": "/"}, "route": action}


def _cluster(name: str, retries: int) -> dict[str, Any]:
    """Istio's clusters have limits as high as they go."""
    limits = dict.fromkeys(("max_connections", "max_pending_requests", "max_requests"), _HIGH)
    return {
        "name": name,
        "type": "STATIC",  # in truth EDS, which needs a control plane
        "circuit_breakers": {"thresholds": [{**limits, "max_retries": retries}]},
    }
