"""What the meshes make of their manifests, as far as the router is concerned.

Written after the meshes' documented behaviour, so that Envoy itself can judge the outcome. No mesh
runs here.
"""

from typing import Any

TYPES = "type.googleapis.com/envoy."
HTTP_OPTIONS = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"


def bootstrap(
    manager: dict[str, Any], listener: dict[str, Any], clusters: list[dict[str, Any]]
) -> dict[str, Any]:
    """One listener with one connection manager, and clusters without addresses."""
    kind = "envoy.filters.network.http_connection_manager"
    typed = {"@type": TYPES + "extensions.filters.network.http_connection_manager.v3."}
    typed["@type"] += "HttpConnectionManager"
    chain = {"filters": [{"name": kind, "typed_config": typed | manager}]}
    address = {"socket_address": {"address": "127.0.0.1", "port_value": 8080}}
    listeners = [{"address": address, "filter_chains": [chain], **listener}]
    return {"static_resources": {"listeners": listeners, "clusters": clusters}}


def router_filter() -> dict[str, Any]:
    """The last of all HTTP filters."""
    typed = {"@type": TYPES + "extensions.filters.http.router.v3.Router"}
    return {"name": "envoy.filters.http.router", "typed_config": typed}


def http2() -> dict[str, Any]:
    """What a cluster of a gRPC service has."""
    options = {
        "@type": f"type.googleapis.com/{HTTP_OPTIONS}",
        "explicit_http_config": {"http2_protocol_options": {}},
    }
    return {HTTP_OPTIONS: options}


def merge(old: Any, new: Any) -> Any:
    """As protobuf merges messages: fields one by one, lists one after the other."""
    if isinstance(old, dict) and isinstance(new, dict):
        merged = dict(old)
        for key, value in new.items():
            merged[key] = merge(merged[key], value) if key in merged else value
        return merged
    return old + new if isinstance(old, list) and isinstance(new, list) else new
