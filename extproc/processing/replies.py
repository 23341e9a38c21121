"""Writing messages to Envoy: acknowledgements, the echo of a body, and the decision.

Replies without content are built once and shared: nobody may change a message of this module.
"""

import json
from collections.abc import Iterable, Sequence
from enum import StrEnum
from functools import lru_cache
from typing import Any, NamedTuple

from envoy.config.core.v3 import base_pb2
from envoy.extensions.filters.http.ext_proc.v3.processing_mode_pb2 import ProcessingMode
from envoy.service.ext_proc.v3 import external_processor_pb2 as pb

from extproc.processing.events import Choice, Refusal, Reply

DESTINATION = "x-gateway-destination-endpoint"
"""Header and metadata field by which Envoy's ``override_host`` policy picks the replica."""

LB_NAMESPACE = "envoy.lb"
FACTS_NAMESPACE = "prefix_extproc"

REFUSED = "x-prefix-refused"
"""Response header that says why a request was refused, in one word."""

EXPLAIN = "x-prefix-explain"
"""Request header that asks for an explanation, and response header that gives it."""

ECHO_LIMIT = 62_000
"""Most bytes in one echoed chunk: below 64 KiB with the message around them, as the Gateway API
Inference Extension has it."""


class Kind(StrEnum):
    """What a message is about; the names of the ``oneof`` fields, equal in both directions."""

    REQUEST_HEADERS = "request_headers"
    REQUEST_BODY = "request_body"
    REQUEST_TRAILERS = "request_trailers"
    RESPONSE_HEADERS = "response_headers"
    RESPONSE_BODY = "response_body"
    RESPONSE_TRAILERS = "response_trailers"


class Piece(NamedTuple):
    """One message from Envoy, as far as its reply depends on it.

    Attributes:
        kind: What it was.
        body: Bytes to echo; empty where nothing is echoed.
        end: Whether the body ended with it and the echo has to say so.
        envelope: In gRPC mode the ``HttpBody`` itself, whose framing the echo must keep.
        late: Whether it came after the end.
    """

    kind: Kind
    body: bytes = b""
    end: bool = False
    envelope: Any = None
    late: bool = False


BARE = {kind: Piece(kind) for kind in Kind}
"""Pieces of which no more than their kind matters."""


def _empty(kind: Kind) -> Any:
    message = pb.ProcessingResponse()
    getattr(message, kind).SetInParent()
    return message


_EMPTY = {kind: (_empty(kind),) for kind in Kind}

ACKNOWLEDGED = {kind: Reply(message) for kind, (message,) in _EMPTY.items()}
"""The event that sends what ``acknowledge`` gives."""


def acknowledge(piece: Piece) -> Sequence[Any]:
    """The empty reply of the kind that Envoy waits for."""
    return _EMPTY[piece.kind]


def echo(piece: Piece) -> Sequence[Any]:
    """The body itself in chunks of at most ``ECHO_LIMIT`` bytes, its end on the last one only.

    Envoy drops the body in full-duplex mode and forwards what comes back, in as many messages as
    the server likes. An empty chunk comes back too: with an upgrade Envoy 1.39 sends one first, and
    nothing behind it before it is answered. A second end does not: Envoy takes that for an error.
    """
    body, last = piece.body, max(len(piece.body) - 1, 0) // ECHO_LIMIT * ECHO_LIMIT
    messages: list[Any] = []
    if piece.late and not body:
        return messages
    for start in range(0, last + 1, ECHO_LIMIT):
        message = pb.ProcessingResponse()
        chunk = getattr(message, piece.kind).response.body_mutation.streamed_response
        chunk.body = body[start : start + ECHO_LIMIT]  # the whole of a short body is not copied
        chunk.end_of_stream = piece.end and start == last
        messages.append(message)
    return messages


def mirror(piece: Piece) -> Sequence[Any]:
    """The body message as it came: gRPC mode has one per gRPC message, which must not be cut."""
    message = pb.ProcessingResponse()
    chunk = getattr(message, piece.kind).response.body_mutation.streamed_response
    chunk.MergeFromString(piece.envelope.SerializeToString())  # the same fields, the same numbers
    return [message]


_OVERWRITE = base_pb2.HeaderValueOption.OVERWRITE_IF_EXISTS_OR_ADD

_UNREAD = ProcessingMode(
    request_body_mode=ProcessingMode.NONE,
    response_header_mode=ProcessingMode.SEND,
    response_trailer_mode=ProcessingMode.SEND,
)
"""A mode for the rest of a request whose body nobody needs to see."""


def decide(reply: Any, kind: Kind, choice: Choice, *, release: bool = False) -> Any:
    """A reply that also carries the decision.

    Args:
        reply: What would be sent without a decision; left as it is.
        kind: Its kind. In reply to trailers only metadata can be set.
        choice: The decision. Without destinations the header is removed, so that a value of the
            client's own never counts.
        release: Whether to ask Envoy not to send the body, in reply to headers. Envoy follows
            with ``allow_mode_override`` and takes no notice without it.
    """
    numbers: list[tuple[str, float]] = []
    words: list[tuple[str, str]] = []
    for name, value in choice.facts.items():
        if isinstance(value, str):
            words.append((name, value))
        else:
            numbers.append((name, value))
    known = _decision(kind, tuple(choice.destinations), tuple(words), release)
    message = pb.ProcessingResponse.FromString(known)
    if reply is not _EMPTY[kind][0]:
        message.MergeFrom(reply)
    if numbers:
        _write(message.dynamic_metadata, FACTS_NAMESPACE, numbers)
    return message


@lru_cache(maxsize=1024)
def _decision(
    kind: Kind, destinations: tuple[str, ...], facts: tuple[tuple[str, str], ...], release: bool
) -> bytes:
    """All of a decision that many requests have in common, serialized."""
    message = _empty(kind)
    ranked = ",".join(destinations)
    if kind is not Kind.REQUEST_TRAILERS:
        mutation = getattr(message, kind).response.header_mutation
        if ranked:
            _set(mutation, DESTINATION, ranked)
        else:
            mutation.remove_headers.append(DESTINATION)
    if release and kind is Kind.REQUEST_HEADERS:
        message.mode_override.CopyFrom(_UNREAD)
    if ranked:
        _write(message.dynamic_metadata, LB_NAMESPACE, [(DESTINATION, ranked)])
    if facts:
        _write(message.dynamic_metadata, FACTS_NAMESPACE, facts)
    serialized: bytes = message.SerializeToString()
    return serialized


def explained(explanation: str) -> Any:
    """The acknowledgement of a response's headers that adds an explanation to them."""
    message = pb.ProcessingResponse()
    _set(message.response_headers.response.header_mutation, EXPLAIN, explanation)
    return message


def refuse(refusal: Refusal) -> Any:
    """An immediate response: Envoy answers the client with it, and ends the stream.

    Its body is an error as clients of the OpenAI API know them.
    """
    message = pb.ProcessingResponse()
    response = message.immediate_response
    response.status.code = refusal.status
    headers = {"content-type": "application/json", REFUSED: refusal.reason}
    if refusal.retry_after_s:
        headers["retry-after"] = str(refusal.retry_after_s)
    if refusal.explanation:
        headers[EXPLAIN] = refusal.explanation
    for name, value in headers.items():
        _set(response.headers, name, value)
    kind = "rate_limit_error" if refusal.status == 429 else "server_error"
    error = {"message": refusal.message, "type": kind, "code": refusal.reason}
    response.body = json.dumps({"error": error}).encode()
    response.details = f"prefix_extproc_{refusal.reason}"
    if refusal.facts:
        _write(message.dynamic_metadata, FACTS_NAMESPACE, refusal.facts.items())
    return message


def _set(mutation: Any, name: str, value: str) -> None:
    option = mutation.set_headers.add(append_action=_OVERWRITE)
    option.header.key, option.header.raw_value = name, value.encode()


def _write(metadata: Any, namespace: str, values: Iterable[tuple[str, str | float | bool]]) -> None:
    """Write a nested ``Struct``, at a third of the cost of its own ``update``."""
    fields = metadata.fields[namespace].struct_value.fields
    for name, value in values:
        setattr(fields[name], _FIELD.get(type(value), "number_value"), value)


_FIELD = {str: "string_value", bool: "bool_value"}
