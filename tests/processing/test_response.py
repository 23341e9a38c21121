"""The response's direction."""

from typing import Any

import pytest

from extproc.processing import Choice, Responded, ResponseEnded, Session, Violation
from tests.processing.messages import (
    BUFFERED,
    DUPLEX,
    GRPC,
    NONE,
    STREAMED,
    echoed,
    kinds,
    only,
    request_headers,
    response_body,
    response_headers,
    response_trailers,
    session,
    some,
    with_served,
)

SERVED: dict[str, Any] = {
    "upstream__address": "[::1]:80",
    "upstream__request_attempt_count": 2.0,
    "response__code_details": "via_upstream",
    "response__flags": 32800.0,
}


def requested(response_mode: int = NONE) -> Session:
    machine = session()
    machine.receive(request_headers(NONE, end=True, response_mode=response_mode))
    machine.decide(Choice())
    return machine


def test_the_headers_tell_who_served() -> None:
    events = requested().receive(
        response_headers((":status", "200"), ("x-a", "1"), ("x-a", "2"), **SERVED)
    )
    assert only(events, Responded) == Responded(
        address="[::1]:80",
        attempts=2,
        status=200,
        flags=32800,
        details="via_upstream",
        headers={":status": ["200"], "x-a": ["1", "2"]},
    )
    assert kinds(events) == ["response_headers"]
    assert not some(events, ResponseEnded)


def test_a_gateway_tells_who_served() -> None:
    message = with_served(response_headers((":status", "200"), **SERVED), "10.0.0.7:8000")
    assert only(requested().receive(message), Responded).address == "10.0.0.7:8000"


@pytest.mark.parametrize("told", ["", "nonsense", 7.0])
def test_what_a_gateway_tells_amiss_does_not_count(told: Any) -> None:
    message = with_served(response_headers((":status", "200"), **SERVED), told)
    assert only(requested().receive(message), Responded).address == "[::1]:80"


def test_a_header_tells_who_served_where_nothing_else_does() -> None:
    told = ("x-gateway-destination-endpoint-served", "10.0.0.7:8000")
    internal = {**SERVED, "upstream__address": "envoy://second_hop/"}
    assert only(requested().receive(response_headers(told, **SERVED)), Responded).address == (
        "[::1]:80"
    )
    assert only(requested().receive(response_headers(told, **internal)), Responded).address == (
        "10.0.0.7:8000"
    )


def test_headers_may_be_the_whole_response() -> None:
    machine = requested()
    events = machine.receive(response_headers((":status", "204"), end=True, **SERVED))
    assert some(events, ResponseEnded)
    assert not some(machine.receive(response_trailers()), ResponseEnded)


def test_trailers_end_a_response_once_and_before_their_reply() -> None:
    machine = requested()
    machine.receive(response_headers())
    events = machine.receive(response_trailers())
    assert isinstance(events[0], ResponseEnded)
    assert kinds(events) == ["response_trailers"]
    again = machine.receive(response_trailers())
    assert kinds(again) == ["response_trailers"]
    assert only(again, Violation).what == "response trailers after the end"
    assert not some(again, ResponseEnded)


@pytest.mark.parametrize("mode", [STREAMED, BUFFERED])
def test_body_messages_are_acknowledged(mode: int) -> None:
    machine = requested(mode)
    machine.receive(response_headers())
    for end in (False, True):
        events = machine.receive(response_body(b"x", end=end))
        assert kinds(events) == ["response_body"]
        assert echoed(events) == (b"", [False])
        assert some(events, ResponseEnded) == end


@pytest.mark.parametrize(("size", "messages"), [(0, 1), (62_000, 1), (62_001, 2), (125_000, 3)])
def test_a_full_duplex_response_is_echoed(size: int, messages: int) -> None:
    machine = requested(DUPLEX)
    machine.receive(response_headers())
    events = machine.receive(response_body(b"x" * size, end=True))
    assert echoed(events) == (b"x" * size, [False] * (messages - 1) + [True])
    assert echoed(machine.receive(response_body(b"", end=True))) == (b"", [])


def test_a_grpc_response_is_echoed_uncut() -> None:
    machine = requested(GRPC)
    machine.receive(response_headers())
    assert echoed(machine.receive(response_body(b"x" * 90_000))) == (b"x" * 90_000, [False])


def test_who_served_may_be_told_late_and_is_told_once() -> None:
    machine = requested()
    assert not some(machine.receive(response_body(b"x")), Responded)
    events = machine.receive(response_trailers(response__flags=32.0))
    assert only(events, Responded) == Responded("", 0, 0, 32, "", {})
    assert not some(machine.receive(response_headers(**SERVED)), Responded)


def test_a_response_without_headers_and_attributes_tells_nothing() -> None:
    events = requested().receive(response_trailers())
    assert not some(events, Responded)
    assert some(events, ResponseEnded)
    assert only(events, Violation).what == "response trailers before headers"


@pytest.mark.parametrize(
    ("attribute", "value"),
    [
        ("response__flags", float("inf")),
        ("response__flags", "many"),
        ("upstream__address", 7.0),
        ("upstream__address", "/run/replica.sock"),
    ],
)
def test_strange_attributes_count_as_absent(attribute: str, value: Any) -> None:
    responded = only(requested().receive(response_headers(**{attribute: value})), Responded)
    assert responded == Responded("", 0, 0, 0, "", {})


@pytest.mark.parametrize("status", ["", "abc", "²", "9" * 5000])
def test_a_strange_status_counts_as_absent(status: str) -> None:
    assert only(requested().receive(response_headers((":status", status))), Responded).status == 0
