"""What Envoy Gateway makes of its policies."""

import re
from typing import Any

from tests.envoy.meshes import TYPES, bootstrap, http2, router_filter

_BODIES = {
    "Streamed": "STREAMED",
    "Buffered": "BUFFERED",
    "BufferedPartial": "BUFFERED_PARTIAL",
    "FullDuplexStreamed": "FULL_DUPLEX_STREAMED",
}
_JSON_PATH = re.compile(r"\.\.http_filters\[\?\(@\.name=='(?P<name>[^']+)'\)\]\.(?P<rest>[\w.]+)")
_SIZES = {"Ki": 1024, "Mi": 1024**2, "Gi": 1024**3}
_OVERRIDE = "extensions.load_balancing_policies.override_host.v3.OverrideHost"
_LEAST = "extensions.load_balancing_policies.least_request.v3.LeastRequest"


def generated(resources: list[dict[str, Any]]) -> dict[str, Any]:
    """A gateway's configuration, from one policy of each kind."""
    spec = {each["kind"]: each["spec"] for each in resources}
    meta = {each["kind"]: each["metadata"] for each in resources}
    policy, traffic = spec["EnvoyExtensionPolicy"], spec["BackendTrafficPolicy"]
    extension = policy["extProc"][0]
    of = f"envoyextensionpolicy/{meta['EnvoyExtensionPolicy']['namespace']}"
    name = f"{of}/{meta['EnvoyExtensionPolicy']['name']}/extproc/0"
    filters = [
        _buffer(traffic["requestBuffer"]["limit"]),
        {"name": f"envoy.filters.http.ext_proc/{name}", "typed_config": _ext_proc(extension, name)},
        router_filter(),
    ]
    client = spec["ClientTrafficPolicy"]["headers"]["earlyRequestHeaders"]["remove"]
    manager = {
        "stat_prefix": "http-10080",
        "early_header_mutation_extensions": [_early(client)],
        "route_config": {
            "virtual_hosts": [{"name": "eg", "domains": ["*"], "routes": [_route(traffic)]}]
        },
        "http_filters": filters,
    }
    for each in spec["EnvoyPatchPolicy"]["jsonPatches"]:
        _patch(filters, each["operation"])
    breakers = extension["backendSettings"]["circuitBreaker"]
    clusters = [
        _cluster(name, breakers) | {"typed_extension_protocol_options": http2()},
        _cluster("llm", traffic["circuitBreaker"])
        | {"load_balancing_policy": _balancing(traffic["loadBalancer"])},
    ]
    return bootstrap(manager, {"per_connection_buffer_limit_bytes": 32_768}, clusters)


def _ext_proc(extension: dict[str, Any], cluster: str) -> dict[str, Any]:
    mode = extension["processingMode"]
    response = mode.get("response")
    return {
        "@type": TYPES + "extensions.filters.http.ext_proc.v3.ExternalProcessor",
        "grpc_service": {"envoy_grpc": {"cluster_name": cluster}, "timeout": "10s"},
        "failure_mode_allow": extension["failOpen"],
        "message_timeout": extension["messageTimeout"],
        "allow_mode_override": mode["allowModeOverride"],
        "processing_mode": {
            "request_header_mode": "SEND" if "request" in mode else "SKIP",
            "request_body_mode": _BODIES[mode["request"]["body"]],
            "request_trailer_mode": "SKIP",
            "response_header_mode": "SKIP" if response is None else "SEND",
            "response_body_mode": "NONE",
            "response_trailer_mode": "SKIP",
        },
        "request_attributes": mode["request"]["attributes"],
        "response_attributes": (response or {})["attributes"],
        "metadata_options": {
            "forwarding_namespaces": {"untyped": extension["metadata"]["accessibleNamespaces"]},
            "receiving_namespaces": {"untyped": extension["metadata"]["writableNamespaces"]},
        },
    }


def _patch(filters: list[dict[str, Any]], operation: dict[str, Any]) -> None:
    match = _JSON_PATH.fullmatch(operation["jsonPath"])
    assert match is not None
    assert operation["op"] == "add"
    (place,) = [each for each in filters if each["name"] == match["name"]]
    for step in match["rest"].split("."):
        place = place[step]
    place[operation["path"]] = operation["value"]


def _buffer(limit: str) -> dict[str, Any]:
    return {
        "name": "envoy.filters.http.buffer",
        "typed_config": {
            "@type": TYPES + "extensions.filters.http.buffer.v3.Buffer",
            "max_request_bytes": int(limit[:-2]) * _SIZES[limit[-2:]],
        },
    }


def _early(headers: list[str]) -> dict[str, Any]:
    kind = "extensions.http.early_header_mutation.header_mutation.v3.HeaderMutation"
    mutations = [{"remove": header} for header in headers]
    return {
        "name": "envoy.http.early_header_mutation.header_mutation",
        "typed_config": {"@type": TYPES + kind, "mutations": mutations},
    }


def _route(traffic: dict[str, Any]) -> dict[str, Any]:
    retry = traffic["retry"]
    return {
        "match": {"prefix": "/"},
        "route": {
            "cluster": "llm",
            "timeout": traffic["timeout"]["http"]["requestTimeout"],
            "retry_policy": {
                "retry_on": ",".join(retry["retryOn"]["triggers"]),
                "num_retries": retry["numRetries"],
            },
        },
    }


def _balancing(balancer: dict[str, Any]) -> dict[str, Any]:
    assert balancer["type"] == "LeastRequest"
    least = _policy("least_request", {"@type": TYPES + _LEAST})
    sources = balancer["endpointOverride"]["extractFrom"]
    override = {"override_host_sources": sources, "fallback_policy": least}
    return _policy("override_host", {"@type": TYPES + _OVERRIDE, **override})


def _policy(name: str, typed: dict[str, Any]) -> dict[str, Any]:
    extension = {"name": f"envoy.load_balancing_policies.{name}", "typed_config": typed}
    return {"policies": [{"typed_extension_config": extension}]}


def _cluster(name: str, breakers: dict[str, Any]) -> dict[str, Any]:
    limits = {
        "max_connections": breakers["maxConnections"],
        "max_pending_requests": breakers["maxPendingRequests"],
        "max_requests": breakers["maxParallelRequests"],
        "max_retries": breakers.get("maxParallelRetries", 1024),
    }
    return {
        "name": name,
        "type": "STATIC",  # in truth EDS, which needs a control plane
        "circuit_breakers": {"thresholds": [limits]},
    }
