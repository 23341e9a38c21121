"""Requests of every kind that the server knows, drawn from a seed."""

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from envoy.service.ext_proc.v3 import external_processor_pb2 as pb
from google.protobuf import struct_pb2

REPLICAS: Final = tuple(f"10.0.0.{number}:8000" for number in range(1, 9))
_FILTER = "envoy.filters.http.ext_proc"
_LETTERS = "abcdefghijklmnopqrstuvwxyz      "
_POOL = ("x-prefix-replicas", ",".join(REPLICAS))
_CHAT = "/v1/chat/completions"
_WORDS = "".join(random.Random(0).choices(_LETTERS, k=1 << 18))

Metadata = tuple[tuple[str, str], ...]

POOLS: Final[tuple[tuple[str, int, Metadata], ...]] = (
    ("kv", 8, (_POOL, ("x-prefix-strategy", "kv_aware"))),
    ("small", 3, (_POOL, ("x-prefix-cache-tokens", "20000"), ("x-prefix-max-in-flight", "3"))),
    ("aware", 3, (_POOL, ("x-prefix-strategy", "prefix_aware"))),
    ("least", 1, (_POOL, ("x-prefix-strategy", "least_outstanding_requests"))),
    ("turns", 1, (_POOL, ("x-prefix-strategy", "round_robin"))),
    ("chance", 1, (_POOL, ("x-prefix-strategy", "random"))),
    ("shadow", 2, (_POOL, ("x-prefix-mode", "shadow"))),
    ("picker", 4, (_POOL, ("x-prefix-protocol", "epp"), ("x-prefix-max-in-flight", "1"))),
    ("sessions", 2, (_POOL, ("x-prefix-session-header", "x-session"))),
    ("observed", 2, ()),
)
"""Name, how often it is drawn, and the settings that its streams bring."""

MODES: Final = (2, 3, 3, 3, 4, 1)
"""``ProcessingMode.BodySendMode`` numbers, as often as they are drawn."""


@dataclass(frozen=True, slots=True)
class Plan:
    """One request, and what becomes of it.

    Attributes:
        metadata: The pool's settings.
        messages: Those from Envoy up to the end of the request.
        overruled: Replica that serves whatever was chosen; empty where the choice is followed.
        status: Of the response; 0 where Envoy leaves before there is one.
        details: Envoy's ``response.code_details``.
        turns: Messages of other requests between this request and its response.
    """

    metadata: Metadata
    messages: tuple[Any, ...]
    overruled: str
    status: int
    details: str
    turns: int


def plans(seed: int, count: int) -> Iterator[Plan]:
    """So many requests.

    Args:
        seed: The same seed gives the same requests.
        count: How many.
    """
    draw = random.Random(seed)
    weights = [weight for _, weight, _ in POOLS]
    for _ in range(count):
        name, _, metadata = draw.choices(POOLS, weights)[0]
        yield _plan(draw, name, metadata)


def _plan(draw: random.Random, pool: str, metadata: Metadata) -> Plan:
    mode = draw.choice(MODES)
    path, body = _body(draw)
    headers = {":method": "POST" if body else "GET", ":path": path, ":authority": "llm"}
    if body:
        headers |= {"content-type": "application/json", "content-length": str(len(body))}
    if draw.random() < 0.3:
        headers["x-session"] = f"s{draw.randrange(50)}"
    messages = [_request(headers, pool, mode, end=not body)]
    if body:
        messages += _chunks(draw, body, mode)
    status, details = draw.choices(
        [
            (200, "via_upstream"),
            (500, "via_upstream"),
            (503, "upstream_reset_before_response_started{connection_failure}"),
            (0, ""),
        ],
        [92, 3, 2, 3],
    )[0]
    overruled = draw.choice(REPLICAS) if draw.random() < 0.05 else ""
    return Plan(metadata, tuple(messages), overruled, status, details, draw.randrange(200))


def _body(draw: random.Random) -> tuple[str, bytes]:
    kind = draw.random()
    if kind < 0.04:
        return "/v1/models", b""
    start, size = draw.randrange(40) * 1000, int(draw.paretovariate(1.2) * 400) % 60_000
    text = _WORDS[start : start + size] + (str(draw.random()) if draw.random() < 0.6 else "")
    if kind < 0.10:
        return "/v1/completions", _json({"model": "m", "prompt": text})
    if kind < 0.13:
        return "/elsewhere", _json({"anything": text})
    messages: list[Any] = [{"role": "system", "content": _WORDS[start : start + 2000]}]
    for turn in range(draw.randrange(1, 6)):
        messages += [{"role": "user", "content": f"{turn} {text[: 300 * turn + 20]}"}]
        messages += [{"role": "assistant", "content": f"answer {turn}"}]
    messages[-1] = {"role": "user", "content": text}
    body = _json({"model": draw.choice(["m", "m", "n"]), "messages": messages})
    return (_CHAT, body[: draw.randrange(1, len(body))]) if kind < 0.17 else (_CHAT, body)


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()


def _request(headers: dict[str, str], pool: str, mode: int, *, end: bool) -> Any:
    message = pb.ProcessingRequest()
    message.protocol_config.request_body_mode = mode
    message.protocol_config.send_body_without_waiting_for_header_response = True
    for key, value in headers.items():
        message.request_headers.headers.headers.add(key=key, raw_value=value.encode())
    message.request_headers.end_of_stream = end
    _attribute(message, {"xds.cluster_name": pool, "xds.route_name": "route"})
    return message


def _chunks(draw: random.Random, body: bytes, mode: int) -> Iterator[Any]:
    cuts = [0, len(body)]
    if mode in {1, 4}:
        cuts += [draw.randrange(len(body) + 1) for _ in range(draw.randrange(4))]
    cuts.sort()
    for start, end in pairwise(cuts):
        message = pb.ProcessingRequest()
        message.request_body.body = body[start:end]
        message.request_body.end_of_stream = end == len(body)
        yield message
        if end == len(body):
            return


def response(address: str, plan: Plan) -> Any:
    """The start of a response.

    Args:
        address: Who served; empty where nobody did.
        plan: For its status.
    """
    message = pb.ProcessingRequest()
    headers = message.response_headers.headers.headers
    headers.add(key=":status", raw_value=str(plan.status).encode())
    headers.add(key="content-type", raw_value=b"text/event-stream")
    attributes: dict[str, Any] = {
        "response.code_details": plan.details,
        "upstream.request_attempt_count": 1,
    }
    if address:
        attributes["upstream.address"] = address
    _attribute(message, attributes)
    return message


def trailers() -> Any:
    """The end of a response."""
    message = pb.ProcessingRequest()
    message.response_trailers.SetInParent()
    return message


def _attribute(message: Any, attributes: dict[str, Any]) -> None:
    struct = struct_pb2.Struct()
    struct.update(attributes)
    message.attributes[_FILTER].CopyFrom(struct)
