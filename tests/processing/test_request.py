"""The request's direction, mode by mode."""

import json

import pytest
from envoy.extensions.filters.http.ext_proc.v3.processing_mode_pb2 import ProcessingMode

from extproc.processing import (
    BodyMode,
    Choice,
    DecisionDue,
    Event,
    Refusal,
    Reply,
    Session,
    Violation,
)
from tests.processing.messages import (
    BUFFERED,
    DUPLEX,
    GRPC,
    NONE,
    PARTIAL,
    STREAMED,
    A,
    B,
    destination,
    echoed,
    kinds,
    only,
    replies,
    request_body,
    request_headers,
    request_trailers,
    response_headers,
    session,
    some,
)

ALL = [
    (NONE, False),
    (STREAMED, False),
    (STREAMED, True),
    (BUFFERED, False),
    (PARTIAL, False),
    (DUPLEX, False),
    (GRPC, False),
]
CHOICE = Choice(destinations=(A, B))
RANKED = f"{A},{B}"


def opened(
    mode: int,
    *headers: tuple[str, str],
    no_wait: bool = False,
    window: int = 512 * 1024,
) -> Session:
    """A session that has got the headers of a request with a body, and owes nothing visible."""
    machine = session(window=window)
    machine.receive(request_headers(mode, *headers, no_wait=no_wait))
    return machine


@pytest.mark.parametrize(("mode", "no_wait"), ALL)
def test_a_request_without_body_is_decided_at_its_headers(mode: int, no_wait: bool) -> None:
    machine = session()
    events = machine.receive(request_headers(mode, no_wait=no_wait, end=True))
    due = only(events, DecisionDue)
    assert (due.body, due.complete, kinds(events)) == (b"", True, [])
    answer = machine.decide(CHOICE)
    assert kinds(answer) == ["request_headers"]
    assert destination(replies(answer)[0]) == RANKED


@pytest.mark.parametrize(("mode", "no_wait"), ALL)
def test_an_unreadable_request_is_decided_at_its_headers(mode: int, no_wait: bool) -> None:
    machine = session(readable=False)
    due = only(machine.receive(request_headers(mode, no_wait=no_wait)), DecisionDue)
    assert (due.body, due.complete) == (b"", False)
    assert machine.patience is None
    assert kinds(machine.decide(CHOICE)) == ["request_headers"]
    assert kinds(machine.receive(request_body(b"x", end=True))) == ["request_body"]


@pytest.mark.parametrize("header", ["upgrade", ":protocol"])
@pytest.mark.parametrize(("mode", "no_wait"), ALL)
def test_an_upgrade_is_decided_at_its_headers_and_each_message_answered(
    mode: int, no_wait: bool, header: str
) -> None:
    machine = session()
    events = machine.receive(request_headers(mode, (header, "websocket"), no_wait=no_wait))
    assert some(events, DecisionDue)
    machine.decide(CHOICE)
    for frame in (b"one", b"two"):
        events = machine.receive(request_body(frame))
        assert kinds(events) == ["request_body"]
        assert not some(events, Violation)
        assert mode not in {DUPLEX, GRPC} or echoed(events) == (frame, [False])


@pytest.mark.parametrize("mode", [BUFFERED, PARTIAL])
@pytest.mark.parametrize("header", ["upgrade", "content-type"])
def test_buffered_modes_let_go_of_a_body_that_nobody_reads(mode: int, header: str) -> None:
    machine = session(readable=header == "upgrade")
    machine.receive(request_headers(mode, (header, "websocket")))
    (reply,) = replies(machine.decide(CHOICE))
    assert reply.mode_override == ProcessingMode(
        request_body_mode=ProcessingMode.NONE,
        response_header_mode=ProcessingMode.SEND,
        response_trailer_mode=ProcessingMode.SEND,
    )


@pytest.mark.parametrize(("mode", "no_wait"), ALL)
def test_no_mode_is_overridden_where_a_body_is_read_or_absent(mode: int, no_wait: bool) -> None:
    for end in (False, True):
        machine = session()
        events = machine.receive(request_headers(mode, no_wait=no_wait, end=end))
        events += machine.decide(CHOICE) + machine.receive(request_body(b"x", end=True))
        events += machine.decide(CHOICE)
        assert replies(events)
        assert not any(reply.HasField("mode_override") for reply in replies(events))


def test_a_connect_request_is_decided_at_its_headers() -> None:
    events = session().receive(request_headers(PARTIAL, (":method", "CONNECT")))
    assert some(events, DecisionDue)


@pytest.mark.parametrize("mode", [NONE, STREAMED])
def test_modes_in_which_only_the_headers_can_carry_the_choice(mode: int) -> None:
    machine = session()
    due = only(machine.receive(request_headers(mode)), DecisionDue)
    assert not due.complete
    assert kinds(machine.receive(request_body(b"early"))) == []
    assert kinds(machine.decide(CHOICE)) == ["request_headers", "request_body"]
    assert kinds(machine.receive(request_body(b"late", end=True))) == ["request_body"]


@pytest.mark.parametrize("mode", [BUFFERED, PARTIAL])
def test_buffered_modes_answer_headers_at_once_and_decide_at_the_body(mode: int) -> None:
    machine = session()
    events = machine.receive(request_headers(mode))
    assert kinds(events) == ["request_headers"]
    assert destination(replies(events)[0]) is None
    assert machine.patience is None
    assert machine.idle() == []
    events = machine.receive(request_body(b"hello", end=True))
    due = only(events, DecisionDue)
    assert (due.body, due.complete, kinds(events)) == (b"hello", True, [])
    answer = machine.decide(CHOICE)
    assert kinds(answer) == ["request_body"]
    assert destination(replies(answer)[0]) == RANKED


@pytest.mark.parametrize(
    ("mode", "headers", "complete"),
    [
        (BUFFERED, (), True),
        (PARTIAL, (), False),
        (PARTIAL, (("content-length", "5"),), True),
        (PARTIAL, (("content-length", "6"),), False),
    ],
)
def test_a_buffered_body_without_end_of_stream_is_decided_all_the_same(
    mode: int, headers: tuple[tuple[str, str], ...], complete: bool
) -> None:
    machine = opened(mode, *headers)
    due = only(machine.receive(request_body(b"hello")), DecisionDue)
    assert (due.body, due.complete) == (b"hello", complete)
    assert kinds(machine.decide(CHOICE)) == ["request_body"]
    assert kinds(machine.receive(request_trailers())) == ["request_trailers"]


@pytest.mark.parametrize("mode", [BUFFERED, PARTIAL])
def test_a_buffered_request_with_trailers_but_no_body_gets_metadata_at_the_trailers(
    mode: int,
) -> None:
    machine = opened(mode)
    due = only(machine.receive(request_trailers()), DecisionDue)
    assert (due.body, due.complete) == (b"", True)
    (reply,) = replies(machine.decide(CHOICE))
    assert reply.WhichOneof("response") == "request_trailers"
    assert not reply.request_trailers.header_mutation.set_headers
    fields = reply.dynamic_metadata.fields["envoy.lb"].struct_value.fields
    assert fields["x-gateway-destination-endpoint"].string_value == RANKED


@pytest.mark.parametrize(("mode", "no_wait"), [(BUFFERED, 0), (PARTIAL, 0), (STREAMED, 1)])
def test_only_the_window_is_handed_on(mode: int, no_wait: int) -> None:
    for size, complete in ((9, True), (10, True), (11, False)):
        machine = opened(mode, no_wait=bool(no_wait), window=10)
        due = only(machine.receive(request_body(b"x" * size, end=True)), DecisionDue)
        assert (due.body, due.complete) == (b"x" * min(size, 10), complete)


def test_streamed_without_waiting_holds_the_headers_and_answers_every_chunk() -> None:
    machine = session()
    assert machine.receive(request_headers(STREAMED, no_wait=True)) == []
    assert machine.receive(request_body(b"ab")) == []
    events = machine.receive(request_body(b"cd", end=True))
    due = only(events, DecisionDue)
    assert (due.body, due.complete, due.head.mode) == (b"abcd", True, BodyMode.STREAMED)
    answer = machine.decide(CHOICE)
    assert kinds(answer) == ["request_headers", "request_body", "request_body"]
    assert [destination(reply) for reply in replies(answer)] == [RANKED, None, None]


@pytest.mark.parametrize("mode", [STREAMED, DUPLEX])
def test_chunks_between_the_question_and_the_choice_are_owed(mode: int) -> None:
    machine = opened(mode, ("content-length", "2"), no_wait=True)
    assert only(machine.receive(request_body(b"ab")), DecisionDue).body == b"ab"
    assert machine.receive(request_body(b"cd")) == []
    assert machine.receive(request_trailers()) == []
    answer = machine.decide(CHOICE)
    assert kinds(answer) == ["request_headers", "request_body", "request_body", "request_trailers"]


@pytest.mark.parametrize("mode", [STREAMED, DUPLEX])
@pytest.mark.parametrize("length", ["99999", "x", "-1", "", "9" * 5000, "²"])
def test_a_wrong_content_length_leaves_the_end_to_decide(mode: int, length: str) -> None:
    machine = opened(mode, ("content-length", length), no_wait=True)
    assert machine.receive(request_body(b"ab")) == []
    due = only(machine.receive(request_body(b"cd", end=True)), DecisionDue)
    assert (due.body, due.complete) == (b"abcd", True)


@pytest.mark.parametrize("mode", [STREAMED, DUPLEX])
def test_a_body_longer_than_its_content_length_passes_whole(mode: int) -> None:
    machine = opened(mode, ("content-length", "3"), no_wait=True)
    due = only(machine.receive(request_body(b"abcd")), DecisionDue)
    assert (due.body, due.complete) == (b"abcd", False)
    events = machine.decide(CHOICE) + machine.receive(request_body(b"ef", end=True))
    assert kinds(events) == ["request_headers", "request_body", "request_body"]
    assert mode != DUPLEX or echoed(events) == (b"abcdef", [False, True])


@pytest.mark.parametrize("mode", [STREAMED, DUPLEX])
def test_trailers_end_a_body(mode: int) -> None:
    machine = opened(mode, no_wait=True)
    machine.receive(request_body(b"ab"))
    due = only(machine.receive(request_trailers()), DecisionDue)
    assert (due.body, due.complete) == (b"ab", True)
    answer = machine.decide(CHOICE)
    assert kinds(answer) == ["request_headers", "request_body", "request_trailers"]
    assert mode != DUPLEX or echoed(answer) == (b"ab", [False])


@pytest.mark.parametrize("mode", [STREAMED, DUPLEX])
def test_patience_is_long_for_a_slow_start_short_after_it_and_endless_without_a_byte(
    mode: int,
) -> None:
    machine = opened(mode, no_wait=True)
    assert machine.patience is None
    assert machine.idle() == []
    machine.receive(request_body(b""))
    assert machine.patience is None
    machine.receive(request_body(b"x" * (32 * 1024 - 1)))
    assert machine.patience == 1.0
    machine.receive(request_body(b"x"))
    assert machine.patience == 0.05
    due = only(machine.idle(), DecisionDue)
    assert (len(due.body), due.complete) == (32 * 1024, False)
    assert machine.patience is None
    assert machine.idle() == []
    assert kinds(machine.decide(CHOICE))[0] == "request_headers"


def test_a_stalled_body_goes_on_after_the_choice() -> None:
    machine = opened(DUPLEX)
    machine.receive(request_body(b"ab"))
    events = machine.idle() + machine.decide(CHOICE)
    assert echoed(events) == (b"ab", [False])
    assert echoed(machine.receive(request_body(b"cd", end=True))) == (b"cd", [True])


@pytest.mark.parametrize(
    ("size", "messages"), [(0, 1), (1, 1), (62_000, 1), (62_001, 2), (124_000, 2), (125_000, 3)]
)
def test_the_echo_comes_in_bounded_chunks_with_the_end_on_the_last(
    size: int, messages: int
) -> None:
    body = bytes(i % 251 for i in range(size))
    machine = opened(DUPLEX)
    machine.receive(request_body(body, end=True))
    answer = machine.decide(CHOICE)
    assert kinds(answer) == ["request_headers"] + ["request_body"] * messages
    data, ends = echoed(answer)
    assert data == body
    assert ends == [False] * (messages - 1) + [True]
    assert all(reply.ByteSize() < 1 << 16 for reply in replies(answer))


def test_an_empty_chunk_is_echoed() -> None:
    machine = opened(DUPLEX)
    machine.receive(request_body(b"ab"))
    machine.idle()
    machine.decide(CHOICE)
    assert echoed(machine.receive(request_body(b""))) == (b"", [False])
    assert echoed(machine.receive(request_body(b"cd", end=True))) == (b"cd", [True])


def test_a_second_end_of_stream_is_not_echoed() -> None:
    machine = opened(DUPLEX)
    machine.receive(request_body(b"ab", end=True))
    machine.decide(CHOICE)
    events = machine.receive(request_body(b"", end=True))
    assert kinds(events) == []
    assert only(events, Violation).what == "request body after the end"


def test_grpc_messages_come_back_uncut_with_their_framing() -> None:
    machine = session()
    machine.receive(request_headers(GRPC))
    machine.decide(CHOICE)
    message = request_body(b"x" * 100_000)
    message.request_body.grpc_message_compressed = True
    (reply,) = replies(machine.receive(message))
    chunk = reply.request_body.response.body_mutation.streamed_response
    assert len(chunk.body) == 100_000
    assert chunk.grpc_message_compressed
    last = request_body()
    last.request_body.end_of_stream_without_message = True
    (reply,) = replies(machine.receive(last))
    chunk = reply.request_body.response.body_mutation.streamed_response
    assert chunk.end_of_stream_without_message


def test_without_protocol_config_headers_go_at_once_and_the_choice_with_the_body() -> None:
    machine = session()
    events = machine.receive(request_headers(None))
    assert kinds(events) == ["request_headers"]
    assert only(events, Violation).what == "first message without protocol_config"
    assert some(machine.receive(request_body(b"a")), DecisionDue)
    assert destination(replies(machine.decide(CHOICE))[0]) == RANKED
    assert kinds(machine.receive(request_body(b"b", end=True))) == ["request_body"]


def test_a_later_protocol_config_changes_nothing() -> None:
    machine = opened(PARTIAL)
    late = request_body(b"a", end=True)
    late.protocol_config.request_body_mode = DUPLEX
    machine.receive(late)
    (reply,) = replies(machine.decide(CHOICE))
    assert not reply.request_body.response.HasField("body_mutation")


@pytest.mark.parametrize(
    ("mode", "no_wait", "owed"),
    [
        (NONE, False, ["request_headers"]),
        (STREAMED, True, ["request_headers"]),
        (DUPLEX, False, ["request_headers"]),
        (PARTIAL, False, []),
    ],
)
def test_abandoning_answers_what_is_owed_and_everything_after(
    mode: int, no_wait: bool, owed: list[str]
) -> None:
    machine = opened(mode, no_wait=no_wait)
    events = machine.abandon()
    assert kinds(events) == owed
    events += machine.receive(request_body(b"ab", end=True))
    assert kinds(events) == [*owed, "request_body"]
    assert destination(replies(events)[0]) == ""
    assert [e for e in events if not isinstance(e, Reply)] == []
    assert machine.decide(CHOICE) == machine.abandon() == machine.idle() == []


def test_a_response_before_the_choice_makes_it_moot() -> None:
    machine = opened(STREAMED, no_wait=True)
    machine.receive(request_body(b"ab"))
    events = machine.receive(response_headers((":status", "408")))
    assert kinds(events) == ["request_headers", "request_body", "response_headers"]
    assert machine.patience is None
    assert machine.decide(CHOICE) == []


def test_a_choice_is_taken_only_when_asked_for_and_only_once() -> None:
    machine = opened(STREAMED, no_wait=True)
    assert machine.decide(CHOICE) == []
    machine.receive(request_body(b"ab", end=True))
    assert len(machine.decide(CHOICE)) == 2
    assert machine.decide(CHOICE) == []


@pytest.mark.parametrize(
    ("messages", "what"),
    [
        ([request_body(b"a", end=True)], "request body before headers"),
        ([request_trailers()], "request trailers before headers"),
        ([request_headers(PARTIAL)] * 2, "request headers repeated"),
        ([request_headers(PARTIAL, end=True), request_body()], "request body after the end"),
        ([request_headers(PARTIAL), request_trailers()] * 2, "request headers repeated"),
    ],
)
def test_messages_out_of_order_are_reported_and_answered(messages: list[object], what: str) -> None:
    machine = session()
    events = [event for message in messages for event in machine.receive(message)]
    assert what in [event.what for event in events if isinstance(event, Violation)]
    assert len(kinds(events + machine.decide(CHOICE))) == len(messages)


def test_a_body_without_headers_carries_the_choice_itself() -> None:
    machine = session()
    due = only(machine.receive(request_body(b"a", end=True)), DecisionDue)
    assert (due.body, due.head.headers) == (b"a", {})
    assert destination(replies(machine.decide(CHOICE))[0]) == RANKED


def test_a_message_without_content_is_reported() -> None:
    empty = request_headers(PARTIAL)
    empty.ClearField("request_headers")
    machine = session()
    assert only(machine.receive(empty), Violation).what == "message without content"
    assert kinds(machine.receive(request_headers())) == ["request_headers"]


@pytest.mark.parametrize("mode", [STREAMED, BUFFERED, PARTIAL])
def test_bytes_that_nobody_will_read_are_not_held(mode: int) -> None:
    machine = opened(mode, no_wait=True, window=10)
    machine.receive(request_body(b"x" * 20))
    for _ in range(3):
        machine.receive(request_body(b"x" * 20))
    assert machine._request._collected.take() == b""
    assert {piece.body for piece in machine._request._owed} == {b""}


REFUSAL = Refusal(503, "no_subset", "Nobody.", facts={"reason": "no_subset"})


def asked(mode: int, *, no_wait: bool) -> Session:
    """A session that waits for its decision, with a body in the middle of its way."""
    machine = opened(mode, no_wait=no_wait)
    events: list[Event] = []
    if mode in {BUFFERED, PARTIAL}:
        events += machine.receive(request_body(b"{}", end=True))
    elif mode in {STREAMED, DUPLEX}:
        events += machine.receive(request_body(b"{", end=False))
        events += machine.idle()
    assert some(events, DecisionDue) or mode in {NONE, GRPC} or not no_wait
    return machine


@pytest.mark.parametrize(("mode", "no_wait"), ALL)
def test_a_refusal_is_one_message_in_every_mode(mode: int, no_wait: bool) -> None:
    machine = asked(mode, no_wait=no_wait)

    (reply,) = replies(machine.decide(REFUSAL._replace(retry_after_s=2)))

    response = reply.immediate_response
    headers = {each.header.key: each.header.raw_value for each in response.headers.set_headers}
    assert response.status.code == 503
    assert headers == {
        "content-type": b"application/json",
        "x-prefix-refused": b"no_subset",
        "retry-after": b"2",
    }
    assert json.loads(response.body) == {
        "error": {"message": "Nobody.", "type": "server_error", "code": "no_subset"}
    }
    assert response.details == "prefix_extproc_no_subset"
    assert reply.dynamic_metadata["prefix_extproc"]["reason"] == "no_subset"


@pytest.mark.parametrize(("mode", "no_wait"), ALL)
def test_nothing_is_answered_behind_a_refusal(mode: int, no_wait: bool) -> None:
    machine = asked(mode, no_wait=no_wait)
    machine.decide(REFUSAL)

    later = [request_body(b"x"), request_body(b"y", end=True), request_trailers()]

    assert machine.patience is None
    assert [machine.receive(message) for message in later] == [[], [], []]
    assert machine.idle() == machine.abandon() == machine.decide(CHOICE) == []


def test_a_refusal_after_the_choice_is_moot() -> None:
    machine = opened(DUPLEX)
    machine.receive(request_body(b"{}", end=True))
    machine.decide(CHOICE)

    assert machine.decide(REFUSAL) == []


def test_a_client_that_is_shed_is_told_so() -> None:
    machine = opened(NONE)

    (reply,) = replies(machine.decide(Refusal(429, "shed", "Later.", retry_after_s=1)))

    assert json.loads(reply.immediate_response.body)["error"]["type"] == "rate_limit_error"
    assert not reply.HasField("dynamic_metadata")
