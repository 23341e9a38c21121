"""Finding a cluster's hosts in what Envoy reads."""

from contextlib import suppress
from copy import deepcopy
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from extproc.replicas.assignment import Host, numeric
from extproc.replicas.endpoint import Endpoint, SourceError
from extproc.replicas.envoy_config import Hosts, InFile, Place, find
from extproc.replicas.target import EdsTarget, Family

BOOTSTRAP = """
node: {id: envoy-7, cluster: edge}
static_resources:
  clusters:
  - name: fixed
    type: STATIC
    transport_socket:
      name: envoy.transport_sockets.tls
      typed_config: {"@type": type.googleapis.com/some.unknown.Type}
    load_assignment:
      cluster_name: fixed
      endpoints:
      - locality: {region: west, zone: west-1}
        priority: 1
        lb_endpoints:
        - endpoint: {address: {socket_address: {address: 10.0.0.1, port_value: 8000}}}
          load_balancing_weight: 3
          metadata:
            filter_metadata: {envoy.lb: {gpu: h100}}
            typed_filter_metadata: {x: {"@type": type.googleapis.com/some.unknown.Type}}
        - endpoint: {address: {socket_address: {address: "fd00::1", port_value: 8000}}}
          health_status: UNHEALTHY
        - endpoint: {address: {pipe: {path: /run/replica.sock}}}
      - locality: {region: east}
        lb_endpoints:
        - endpoint_name: third
      named_endpoints:
        third: {address: {socket_address: {address: 10.0.0.3, port_value: 8000}}}
  - name: named
    type: STRICT_DNS
    dns_lookup_family: V4_ONLY
    load_assignment:
      endpoints:
      - lb_endpoints:
        - endpoint: {address: {socket_address: {address: replicas.example, port_value: 8000}}}
  - name: from-file
    type: EDS
    eds_cluster_config:
      eds_config: {path_config_source: {path: /etc/envoy/eds.yaml}}
  - name: from-old-file
    type: EDS
    eds_cluster_config:
      service_name: replicas
      eds_config: {path: /etc/envoy/eds.yaml}
  - name: from-plane
    type: EDS
    eds_cluster_config:
      service_name: replicas
      eds_config:
        api_config_source:
          api_type: DELTA_GRPC
          grpc_services: [{envoy_grpc: {cluster_name: plane}}]
  - name: from-ads
    type: EDS
    eds_cluster_config: {eds_config: {ads: {}}}
  - name: from-tls
    type: EDS
    eds_cluster_config:
      eds_config:
        api_config_source:
          api_type: GRPC
          grpc_services: [{envoy_grpc: {cluster_name: fixed}}]
  - name: from-nowhere
    type: EDS
    eds_cluster_config:
      eds_config:
        api_config_source:
          api_type: GRPC
          grpc_services: [{envoy_grpc: {cluster_name: missing}}]
  - name: from-rest
    type: EDS
    eds_cluster_config: {eds_config: {api_config_source: {api_type: REST}}}
  - {name: one-at-a-time, type: LOGICAL_DNS}
  - {name: passing, type: ORIGINAL_DST}
  - {name: special, cluster_type: {name: envoy.clusters.aggregate}}
  - {name: wrong, type: STATIC, load_assignment: {endpoints: nonsense}}
  - name: plane
    type: STRICT_DNS
    load_assignment:
      endpoints:
      - lb_endpoints:
        - endpoint: {address: {socket_address: {address: plane.example, port_value: 18000}}}
dynamic_resources:
  ads_config:
    api_type: GRPC
    grpc_services: [{envoy_grpc: {cluster_name: plane}}]
"""


PARSED: dict[str, Any] = yaml.safe_load(BOOTSTRAP)


def bootstrap() -> dict[str, Any]:
    return deepcopy(PARSED)


def camel(value: Any) -> Any:
    """With all names as JSON files of other tools have them."""
    if isinstance(value, dict):
        return {_camel(key): camel(each) for key, each in value.items()}
    return [camel(each) for each in value] if isinstance(value, list) else value


def _camel(key: str) -> str:
    first, *rest = key.split("_")
    return first + "".join(map(str.capitalize, rest))


@pytest.mark.parametrize("config", [bootstrap(), camel(bootstrap())], ids=["snake", "camel"])
@pytest.mark.parametrize(
    ("name", "place"),
    [
        (
            "named",
            Hosts([Host("replicas.example", 8000, Endpoint(""))], Family.V4_ONLY),
        ),
        ("from-file", InFile("/etc/envoy/eds.yaml", "from-file")),
        ("from-old-file", InFile("/etc/envoy/eds.yaml", "replicas")),
        (
            "from-plane",
            EdsTarget("plane.example", 18000, "replicas", delta=True, node="envoy-7"),
        ),
        ("from-ads", EdsTarget("plane.example", 18000, "from-ads", ads=True, node="envoy-7")),
    ],
)
def test_where_hosts_are(config: dict[str, Any], name: str, place: Place) -> None:
    assert find(config, name) == place


@pytest.mark.parametrize("config", [bootstrap(), camel(bootstrap())], ids=["snake", "camel"])
def test_hosts_of_a_static_cluster(config: dict[str, Any]) -> None:
    place = find(config, "fixed")

    assert isinstance(place, Hosts)
    assert place.family is None
    assert numeric(place.hosts) == [
        Endpoint("10.0.0.1:8000", "west-1", 3, 1),
        Endpoint("[fd00::1]:8000", "west-1", 1, 1, healthy=False),
        Endpoint("10.0.0.3:8000", "east"),
    ]


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("other", "no cluster 'other': there are fixed, named, from-file"),
        ("from-tls", "control plane 'fixed' has TLS: name it as eds+tls://host:port/name"),
        ("from-nowhere", "the address of the control plane 'missing' is not in this file"),
        ("from-rest", "neither a file nor gRPC"),
        ("one-at-a-time", "is LOGICAL_DNS: use STATIC, STRICT_DNS or EDS"),
        ("passing", "is ORIGINAL_DST: use"),
        ("special", "is envoy.clusters.aggregate: use"),
        ("wrong", "Envoy would not read this"),
    ],
)
def test_what_is_no_list_of_hosts(name: str, problem: str) -> None:
    with pytest.raises(SourceError) as caught:
        find(bootstrap(), name)
    assert problem in str(caught.value)


def test_files_of_resources() -> None:
    cluster = {
        "@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster",
        "name": "llm",
        "type": "EDS",
        "eds_cluster_config": {"eds_config": {"path": "/eds.json"}},
    }
    hosts = {
        "@type": "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
        "cluster_name": "llm",
    }
    other = {**hosts, "cluster_name": "other"}

    assert find({"dynamic_resources": {"cds_config": {"path": "/cds.json"}}}, "llm") == InFile(
        "/cds.json", "llm"
    )
    assert find({"resources": [other, cluster]}, "llm") == InFile("/eds.json", "llm")
    assert find({"version_info": "0", "resources": [other, hosts]}, "llm") == Hosts([], None)
    wrapped = {"name": "llm", "version": "1", "resource": hosts}
    assert find({"resources": [wrapped]}, "llm") == Hosts([], None)


@pytest.mark.parametrize("config", [None, [], "text", 7])
def test_what_is_no_configuration(config: Any) -> None:
    with pytest.raises(SourceError, match="no configuration of Envoy's"):
        find(config, "llm")


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"static_resources": None, "resources": [7, None]},
        {"static_resources": {"clusters": [7, {"name": 7}]}},
        {"dynamic_resources": [], "resources": None},
    ],
)
def test_a_configuration_without_clusters(config: Any) -> None:
    with pytest.raises(SourceError, match="no cluster 'llm'"):
        find(config, "llm")


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_no_configuration_is_a_fault(data: st.DataObject) -> None:
    config = bootstrap()
    place: Any = config
    while isinstance(place, dict | list) and place:
        keys = sorted(place) if isinstance(place, dict) else range(len(place))
        key = data.draw(st.sampled_from(keys))
        if data.draw(st.integers(0, 4)) == 0 or not isinstance(place[key], dict | list):
            place[key] = data.draw(st.sampled_from([None, 7, -1, 1.5, "x", [], {}, [7], {"x": 7}]))
            break
        place = place[key]
    for name in ("fixed", "named", "from-file", "from-plane", "from-ads"):
        with suppress(SourceError):
            find(config, name)


def test_a_name_where_an_address_belongs() -> None:
    with pytest.raises(SourceError, match="'replica' with port 80 is no address"):
        numeric([Host("replica", 80, Endpoint(""))])
