"""Reading heads and writing decisions, checked against an independent codec."""

from typing import Any

import pytest
from envoy.service.ext_proc.v3 import external_processor_pb2 as pb
from envoy_data_plane.envoy.config.core.v3 import HeaderMap, HeaderValue
from envoy_data_plane.envoy.service.ext_proc.v3 import (
    HeadersResponse,
    HttpBody,
    HttpHeaders,
    ProcessingRequest,
    ProcessingResponse,
)

from extproc.processing import (
    BodyMode,
    Choice,
    DecisionDue,
    attributes_of,
    canonical_address,
    canonical_host,
    metadata_of,
)
from tests.processing.messages import (
    DUPLEX,
    NONE,
    A,
    B,
    destination,
    only,
    replies,
    request_headers,
    session,
)


def parsed(wire: bytes) -> Any:
    """A reply as the other codec reads it; every field is optional there, hence untyped."""
    return ProcessingResponse.parse(wire)


def test_a_head_keeps_duplicates_order_and_every_byte() -> None:
    message = request_headers(NONE, (":path", "/v1"), ("X-Tag", "a"), ("x-tag", "b"))
    message.request_headers.headers.headers.add(key="x-raw", raw_value=b"\xff\xc3\xa9")
    message.request_headers.headers.headers.add(key="x-text", value="plain")
    result = only(session().receive(message), DecisionDue).head
    assert result.headers == {
        ":path": ["/v1"],
        "x-tag": ["a", "b"],
        "x-raw": ["\udcff\u00e9"],
        "x-text": ["plain"],
    }
    assert result.header("x-raw").encode("utf-8", "surrogateescape") == b"\xff\xc3\xa9"
    assert (result.header("x-tag"), result.header("x-none")) == ("a", "")
    assert (result.mode, result.end_of_stream) == (BodyMode.NONE, False)


def test_attributes_are_flat_over_namespaces_and_nested_values_plain() -> None:
    message = pb.ProcessingRequest()
    message.attributes["envoy.filters.http.ext_proc"].update(
        {"xds.cluster_name": "llm", "upstream.request_attempt_count": 1.0, "x": {"y": [True, None]}}
    )
    message.attributes["another"].update({"xds.route_name": "r"})
    assert attributes_of(message) == {
        "xds.cluster_name": "llm",
        "upstream.request_attempt_count": 1.0,
        "x": {"y": [True, None]},
        "xds.route_name": "r",
    }


def test_metadata_by_namespace() -> None:
    message = pb.ProcessingRequest()
    assert metadata_of(message) == {}
    subset = {"x-gateway-destination-endpoint-subset": [A, B]}
    message.metadata_context.filter_metadata["envoy.lb.subset_hint"].update(subset)
    assert metadata_of(message) == {"envoy.lb.subset_hint": subset}


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("10.0.0.1:80", "10.0.0.1:80"),
        (" 10.0.0.1:080 ", "10.0.0.1:80"),
        ("[::1]:80", "[::1]:80"),
        ("[2001:DB8:0:0::1]:65535", "[2001:db8::1]:65535"),
        ("[::ffff:10.0.0.1]:80", "[::ffff:10.0.0.1]:80"),
        ("::1:80", ""),
        ("[10.0.0.1]:80", ""),
        ("[::1%lo]:80", ""),
        ("10.0.0.1", ""),
        ("10.0.0.01:80", ""),
        ("10.1:80", ""),
        ("10.0.0.1:0", ""),
        ("10.0.0.1:65536", ""),
        ("10.0.0.1:+80", ""),
        ("host:80", ""),
        ("10.0.0.1\0:80", ""),
        ("/run/sock", ""),
        ("", ""),
    ],
)
def test_canonical_addresses(text: str, canonical: str) -> None:
    assert canonical_address(text) == canonical


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("[2001:DB8:0:0::1]", "[2001:db8::1]"),
        ("2001:db8::1", "[2001:db8::1]"),
        ("[10.0.0.1]", ""),
        ("[::1", ""),
        ("10.0.0.1:80", ""),
        ("host", ""),
        ("", ""),
    ],
)
def test_canonical_hosts(text: str, canonical: str) -> None:
    assert canonical_host(text) == canonical


def decided(choice: Choice) -> pb.ProcessingResponse:
    machine = session()
    machine.receive(request_headers(NONE, end=True))
    (reply,) = replies(machine.decide(choice))
    return reply


def test_a_decision_in_the_eyes_of_another_codec() -> None:
    facts: dict[str, str | float | bool] = {"reason": "matched", "tokens": 12.0, "shared": True}
    wire = decided(Choice((A, B), facts)).SerializeToString()
    message = parsed(wire)
    response = message.request_headers.response
    (option,) = response.header_mutation.set_headers
    assert (option.header.key, option.header.raw_value) == (
        "x-gateway-destination-endpoint",
        f"{A},{B}".encode(),
    )
    assert option.append_action.name == "OVERWRITE_IF_EXISTS_OR_ADD"
    assert response.header_mutation.remove_headers == []
    assert not response.clear_route_cache
    assert response.status.name == "CONTINUE"
    fields = message.dynamic_metadata.fields
    assert set(fields) == {"envoy.lb", "prefix_extproc"}
    lb = fields["envoy.lb"].struct_value.fields
    assert lb["x-gateway-destination-endpoint"].string_value == f"{A},{B}"
    ours = fields["prefix_extproc"].struct_value.fields
    assert ours["reason"].string_value == "matched"
    assert ours["tokens"].number_value == 12.0
    assert ours["shared"].bool_value is True


def test_an_empty_choice_removes_the_header_and_sets_no_endpoint() -> None:
    reply = decided(Choice(facts={"reason": "cold"}))
    assert destination(reply) == ""
    assert not reply.request_headers.response.header_mutation.set_headers
    assert set(reply.dynamic_metadata.fields) == {"prefix_extproc"}
    assert not decided(Choice()).HasField("dynamic_metadata")


def test_deciding_leaves_the_shared_replies_empty() -> None:
    decided(Choice((A,)))
    machine = session()
    (reply,) = replies(machine.receive(request_headers(3)))  # BUFFERED_PARTIAL: answered at once
    assert (
        reply.SerializeToString()
        == pb.ProcessingResponse(request_headers=pb.HeadersResponse()).SerializeToString()
    )
    theirs = parsed(reply.SerializeToString())
    assert theirs.request_headers == HeadersResponse()


def test_messages_that_another_codec_wrote() -> None:
    machine = session()
    first = ProcessingRequest(
        request_headers=HttpHeaders(
            headers=HeaderMap(headers=[HeaderValue(key=":path", raw_value=b"/v1/x")])
        ),
    )
    ours = pb.ProcessingRequest.FromString(bytes(first))
    ours.protocol_config.request_body_mode = DUPLEX
    assert machine.receive(ours) == []
    body = ProcessingRequest(request_body=HttpBody(body=b"abc", end_of_stream=True))
    due = only(machine.receive(pb.ProcessingRequest.FromString(bytes(body))), DecisionDue)
    assert (due.head.header(":path"), due.body, due.complete) == ("/v1/x", b"abc", True)
    echo = parsed(replies(machine.decide(Choice((A,))))[1].SerializeToString())
    mutation = echo.request_body.response.body_mutation
    assert mutation.streamed_response.body == b"abc"
    assert mutation.streamed_response.end_of_stream
