"""What Envoy sends, made by hand."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from envoy.service.ext_proc.v3 import external_processor_pb2 as pb
from google.protobuf import struct_pb2

from extproc.processing import DESTINATION, FACTS_NAMESPACE

BUFFERED_PARTIAL = 3
FULL_DUPLEX_STREAMED = 4
FILTER = "envoy.filters.http.ext_proc"

JSON = {":method": "POST", ":path": "/v1/chat/completions", "content-type": "application/json"}
GET = {":method": "GET", ":path": "/v1/models"}


def chat(text: str, **fields: Any) -> bytes:
    """A chat body with one message."""
    messages = [{"role": "user", "content": text}]
    return json.dumps({"model": "m", "messages": messages, **fields}).encode()


def request_headers(
    headers: Mapping[str, str] = JSON,
    *,
    cluster: str = "llm",
    end_of_stream: bool = False,
    mode: int = BUFFERED_PARTIAL,
    subset: str | list[str] | None = None,
) -> Any:
    message = pb.ProcessingRequest()
    message.protocol_config.request_body_mode = mode
    message.protocol_config.send_body_without_waiting_for_header_response = True
    _headers(message.request_headers, headers)
    message.request_headers.end_of_stream = end_of_stream
    attributes = {"xds.cluster_name": cluster, "xds.route_name": "route"}
    message.attributes[FILTER].update(attributes)
    if subset is not None:
        fields = {"x-gateway-destination-endpoint-subset": subset}
        metadata = message.metadata_context.filter_metadata["envoy.lb.subset_hint"]
        metadata.CopyFrom(struct_pb2.Struct())
        metadata.update(fields)
    return message


def request_body(body: bytes, *, end_of_stream: bool = True) -> Any:
    message = pb.ProcessingRequest()
    message.request_body.body = body
    message.request_body.end_of_stream = end_of_stream
    return message


def response_headers(
    address: str, *, status: int = 200, attempts: int = 1, details: str = "via_upstream"
) -> Any:
    message = pb.ProcessingRequest()
    _headers(message.response_headers, {":status": str(status)})
    attributes = {"upstream.request_attempt_count": attempts, "response.code_details": details}
    if address:
        attributes |= {"upstream.address": address}
    message.attributes[FILTER].update(attributes)
    return message


def response_trailers() -> Any:
    message = pb.ProcessingRequest()
    message.response_trailers.SetInParent()
    return message


def destinations(replies: Sequence[Any]) -> list[str]:
    """Where the replies send a request; empty where they leave it to Envoy."""
    sides = (getattr(reply, reply.WhichOneof("response")) for reply in replies)
    found = [
        option.header.raw_value.decode()
        for side in sides
        for option in side.response.header_mutation.set_headers
        if option.header.key == DESTINATION
    ]
    assert len(found) <= 1
    return found[0].split(",") if found else []


def facts(replies: Sequence[Any]) -> dict[str, Any]:
    """What the replies tell access logs."""
    for reply in replies:
        if FACTS_NAMESPACE in reply.dynamic_metadata.fields:
            struct = reply.dynamic_metadata.fields[FACTS_NAMESPACE].struct_value
            return dict(struct.items())
    return {}


def _headers(target: Any, headers: Mapping[str, str]) -> None:
    for key, value in headers.items():
        header = target.headers.headers.add()
        header.key = key
        header.raw_value = value.encode()
