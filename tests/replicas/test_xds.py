"""The xDS protocol, without a network."""

import pytest
from envoy.config.endpoint.v3 import endpoint_pb2
from envoy.service.discovery.v3 import discovery_pb2
from google.protobuf import any_pb2

from extproc.replicas.endpoint import Endpoint
from extproc.replicas.xds import TYPE, Delta, StateOfTheWorld


def packed(name: str, *hosts: tuple[str, int]) -> any_pb2.Any:
    message = endpoint_pb2.ClusterLoadAssignment(cluster_name=name)
    group = message.endpoints.add()
    for host, port in hosts:
        socket = group.lb_endpoints.add().endpoint.address.socket_address
        socket.address, socket.port_value = host, port
    wrapped = any_pb2.Any()
    wrapped.Pack(message)
    return wrapped


def state(version: str, *resources: any_pb2.Any) -> discovery_pb2.DiscoveryResponse:
    return discovery_pb2.DiscoveryResponse(
        version_info=version, nonce=f"nonce {version}", resources=resources, type_url=TYPE
    )


def delta(
    nonce: str, version: str = "", resource: any_pb2.Any | None = None, removed: str = ""
) -> discovery_pb2.DeltaDiscoveryResponse:
    response = discovery_pb2.DeltaDiscoveryResponse(nonce=nonce, type_url=TYPE)
    if resource is not None:
        response.resources.add(name="llm", version=version, resource=resource)
    if removed:
        response.removed_resources.append(removed)
    return response


BAD = [
    (packed("llm", ("replica", 80)), "'replica' with port 80 is no address"),
    (packed("llm", ("10.0.0.1", 0)), "'10.0.0.1' with port 0 is no address"),
    (any_pb2.Any(type_url=TYPE, value=b"\xff\xff"), "cannot be decoded"),
    (any_pb2.Any(type_url="type.googleapis.com/other"), "type.googleapis.com/other"),
]


def test_state_of_the_world_is_acknowledged_and_remembered() -> None:
    protocol = StateOfTheWorld("llm", "me")
    first = protocol.first()
    assert (first.type_url, list(first.resource_names)) == (TYPE, ["llm"])
    assert (first.node.id, first.version_info, first.response_nonce) == ("me", "", "")

    others = packed("other", ("10.0.0.9", 80))
    taken = protocol.take(state("1", others, packed("llm", ("10.0.0.1", 80))))

    assert taken.endpoints == [Endpoint("10.0.0.1:80")]
    assert (taken.reply.version_info, taken.reply.response_nonce) == ("1", "nonce 1")
    assert not taken.reply.HasField("error_detail")
    assert protocol.first().version_info == "1"


@pytest.mark.parametrize(("resource", "text"), BAD)
def test_state_of_the_world_that_is_no_good_is_refused(resource: any_pb2.Any, text: str) -> None:
    protocol = StateOfTheWorld("llm", "me")
    protocol.take(state("1", packed("llm", ("10.0.0.1", 80))))

    taken = protocol.take(state("2", resource))

    assert taken.endpoints is None
    assert text in taken.problem
    assert (taken.reply.version_info, taken.reply.response_nonce) == ("1", "nonce 2")
    assert taken.reply.error_detail.code == 3
    assert text in taken.reply.error_detail.message
    assert protocol.first().version_info == "1"


def test_a_state_without_the_resource_is_a_problem_but_no_removal() -> None:
    taken = StateOfTheWorld("llm", "me").take(state("1"))

    assert taken.endpoints is None
    assert "'llm'" in taken.problem
    assert taken.reply.version_info == "1"


def test_an_assignment_of_nobody_is_an_answer() -> None:
    assert StateOfTheWorld("llm", "me").take(state("1", packed("llm"))).endpoints == []


def test_a_resource_in_a_wrapper() -> None:
    wrapper = any_pb2.Any()
    wrapper.Pack(discovery_pb2.Resource(name="llm", resource=packed("llm", ("fd00::1", 80))))

    taken = StateOfTheWorld("llm", "me").take(state("1", wrapper))

    assert taken.endpoints == [Endpoint("[fd00::1]:80")]


def test_delta_is_acknowledged_and_remembered() -> None:
    protocol = Delta("llm", "me")
    first = protocol.first()
    assert list(first.resource_names_subscribe) == ["llm"]
    assert (first.node.id, dict(first.initial_resource_versions)) == ("me", {})

    taken = protocol.take(delta("n1", "7", packed("llm", ("10.0.0.1", 80))))

    assert taken.endpoints == [Endpoint("10.0.0.1:80")]
    assert taken.reply.response_nonce == "n1"
    assert not taken.reply.HasField("error_detail")
    assert not taken.reply.resource_names_subscribe
    assert dict(protocol.first().initial_resource_versions) == {"llm": "7"}

    nothing = protocol.take(delta("n2"))
    assert (nothing.endpoints, nothing.problem) == (None, "")
    assert nothing.reply.response_nonce == "n2"


@pytest.mark.parametrize(("resource", "text"), BAD)
def test_a_delta_that_is_no_good_is_refused(resource: any_pb2.Any, text: str) -> None:
    protocol = Delta("llm", "me")
    protocol.take(delta("n1", "7", packed("llm", ("10.0.0.1", 80))))

    taken = protocol.take(delta("n2", "8", resource))

    assert taken.endpoints is None
    assert text in taken.problem
    assert text in taken.reply.error_detail.message
    assert dict(protocol.first().initial_resource_versions) == {"llm": "7"}


def test_a_removal_is_a_problem_and_the_resource_is_asked_for_anew() -> None:
    protocol = Delta("llm", "me")
    protocol.take(delta("n1", "7", packed("llm", ("10.0.0.1", 80))))

    taken = protocol.take(delta("n2", removed="llm"))

    assert taken.endpoints is None
    assert taken.problem == "has removed 'llm'"
    assert not taken.reply.HasField("error_detail")
    assert dict(protocol.first().initial_resource_versions) == {}
