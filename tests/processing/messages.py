"""Short ways to write Envoy's messages and to read a session's events."""

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from envoy.config.core.v3 import base_pb2
from envoy.service.ext_proc.v3 import external_processor_pb2 as pb

from extproc.processing import DESTINATION, Event, Reply, Session
from extproc.processing.replies import Kind

E = TypeVar("E")

NONE, STREAMED, BUFFERED, PARTIAL, DUPLEX, GRPC = range(6)

A, B = "10.0.0.1:8000", "[::1]:80"


def header_map(headers: Iterable[tuple[str, str]]) -> Any:
    return base_pb2.HeaderMap(
        headers=[base_pb2.HeaderValue(key=k, raw_value=v.encode()) for k, v in headers]
    )


def request_headers(
    mode: int | None = None,
    *headers: tuple[str, str],
    no_wait: bool = False,
    end: bool = False,
    response_mode: int = NONE,
) -> Any:
    message = pb.ProcessingRequest(
        request_headers=pb.HttpHeaders(headers=header_map(headers), end_of_stream=end)
    )
    if mode is not None:
        message.protocol_config.request_body_mode = mode
        message.protocol_config.response_body_mode = response_mode
        message.protocol_config.send_body_without_waiting_for_header_response = no_wait
    return message


def request_body(body: bytes = b"", *, end: bool = False) -> Any:
    return pb.ProcessingRequest(request_body=pb.HttpBody(body=body, end_of_stream=end))


def request_trailers() -> Any:
    return pb.ProcessingRequest(request_trailers=pb.HttpTrailers())


def response_headers(*headers: tuple[str, str], end: bool = False, **attributes: Any) -> Any:
    message = pb.ProcessingRequest(
        response_headers=pb.HttpHeaders(headers=header_map(headers), end_of_stream=end)
    )
    return with_attributes(message, {k.replace("__", "."): v for k, v in attributes.items()})


def response_body(body: bytes = b"", *, end: bool = False) -> Any:
    return pb.ProcessingRequest(response_body=pb.HttpBody(body=body, end_of_stream=end))


def response_trailers(**attributes: Any) -> Any:
    message = pb.ProcessingRequest(response_trailers=pb.HttpTrailers())
    return with_attributes(message, {k.replace("__", "."): v for k, v in attributes.items()})


def with_attributes(message: Any, attributes: dict[str, Any]) -> Any:
    if attributes:
        message.attributes["envoy.filters.http.ext_proc"].update(attributes)
    return message


def session(*, readable: bool = True, window: int = 512 * 1024) -> Session:
    return Session(readable=lambda _head: readable, window=window)


def replies(events: Sequence[Event]) -> list[Any]:
    return [event.message for event in events if isinstance(event, Reply)]


def kinds(events: Sequence[Event]) -> list[str]:
    """The kinds of the replies among ``events``, in order."""
    return [message.WhichOneof("response") for message in replies(events)]


def only(events: Sequence[Event], kind: type[E]) -> E:
    """The one event of type ``kind``."""
    found = [event for event in events if isinstance(event, kind)]
    assert len(found) == 1, f"{len(found)} of {kind.__name__} in {events}"
    return found[0]


def some(events: Sequence[Event], kind: type[Event]) -> bool:
    return any(isinstance(event, kind) for event in events)


def destination(message: Any) -> str | None:
    """What a reply sets the destination header to; empty if it removes it, None if neither."""
    kind = Kind(message.WhichOneof("response"))
    if kind.value.endswith("trailers"):
        return None
    mutation = getattr(message, kind).response.header_mutation
    for option in mutation.set_headers:
        assert option.header.key == DESTINATION
        return str(option.header.raw_value.decode())
    return "" if list(mutation.remove_headers) == [DESTINATION] else None


def echoed(events: Sequence[Event]) -> tuple[bytes, list[bool]]:
    """The bytes that full-duplex replies carry, and each one's end of stream."""
    chunks = [
        getattr(message, message.WhichOneof("response")).response.body_mutation.streamed_response
        for message in replies(events)
        if message.WhichOneof("response").endswith("_body")
    ]
    return b"".join(chunk.body for chunk in chunks), [chunk.end_of_stream for chunk in chunks]


def with_served(message: Any, address: Any) -> Any:
    """What a gateway tells of who served."""
    fields = {"x-gateway-destination-endpoint-served": address}
    message.metadata_context.filter_metadata["envoy.lb"].update(fields)
    return message
