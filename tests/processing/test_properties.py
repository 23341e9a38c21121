"""What holds for every sequence of messages, in every mode."""

from collections import Counter
from itertools import pairwise
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from extproc.processing import (
    DESTINATION,
    ECHO_LIMIT,
    Choice,
    DecisionDue,
    Event,
    Responded,
    ResponseEnded,
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
    response_body,
    response_headers,
    response_trailers,
    session,
    some,
)

quick = settings(max_examples=200, deadline=None)

modes = st.sampled_from([NONE, STREAMED, BUFFERED, PARTIAL, DUPLEX, GRPC, 17])
bodies = st.one_of(
    st.binary(max_size=40),
    st.sampled_from([ECHO_LIMIT, ECHO_LIMIT + 1, 125_000]).map(lambda size: b"x" * size),
)
header_lists = st.lists(
    st.sampled_from(
        [
            ("content-length", "99999"),
            ("content-length", "3"),
            ("content-length", "nonsense"),
            ("upgrade", "websocket"),
            (":status", "200"),
        ]
    ),
    max_size=2,
)


def configured(message: Any, mode: int, no_wait: bool) -> Any:
    message.protocol_config.request_body_mode = mode
    message.protocol_config.response_body_mode = mode
    message.protocol_config.send_body_without_waiting_for_header_response = no_wait
    return message


messages = st.one_of(
    st.builds(lambda h, end: request_headers(None, *h, end=end), header_lists, st.booleans()),
    st.builds(lambda body, end: request_body(body, end=end), bodies, st.booleans()),
    st.builds(lambda body, end: request_body(body, end=end), bodies, st.booleans()),
    st.builds(request_trailers),
    st.builds(lambda h, end: response_headers(*h, end=end), header_lists, st.booleans()),
    st.builds(lambda body, end: response_body(body, end=end), bodies, st.booleans()),
    st.builds(response_trailers),
    st.builds(lambda: configured(request_headers(), NONE, no_wait=False)),
    st.builds(lambda: response_trailers(upstream__address=A, response__flags=64.0)),
)
inputs = st.lists(
    st.one_of(
        messages.map(lambda message: ("receive", message)),
        st.sampled_from([("idle", None), ("decide", None), ("abandon", None)]),
    ),
    max_size=12,
)


def drive(machine: Session, action: str, message: Any) -> list[Event]:
    if action == "receive":
        return machine.receive(message)
    if action == "decide":
        return machine.decide(Choice((A,)))
    return machine.idle() if action == "idle" else machine.abandon()


def copied(message: Any) -> Any:
    result = type(message)()
    result.CopyFrom(message)
    return result


@quick
@given(modes, st.booleans(), st.booleans(), inputs)
def test_any_sequence_is_answered_in_kind_and_in_full(
    mode: int, no_wait: bool, readable: bool, steps: list[tuple[str, Any]]
) -> None:
    machine = session(readable=readable, window=100_000)
    received: list[Any] = []
    events: list[Event] = []
    for action, message in [*steps, ("decide", None), ("abandon", None)]:
        taken = message
        if message is not None:
            taken = message if received else configured(copied(message), mode, no_wait)
            received.append(taken)
        events += drive(machine, action, taken)
        assert machine.patience in {None, 1.0, 0.05}
    for once in (DecisionDue, Responded, ResponseEnded):
        assert sum(isinstance(event, once) for event in events) <= 1

    asked = Counter(message.WhichOneof("request") for message in received)
    answered = Counter(kinds(events))
    echoing = mode in {DUPLEX, GRPC}
    for kind, count in asked.items():
        if not (echoing and kind.endswith("_body")):
            assert answered[kind] == count
    for side in ("request", "response") if echoing else ():
        of_side = [m for m in received if m.WhichOneof("request") == f"{side}_body"]
        answers = [e for e in events if some([e], type(e)) and kinds([e]) == [f"{side}_body"]]
        body, _ = echoed(answers)
        assert body == b"".join(getattr(m, f"{side}_body").body for m in of_side)

    mutated = [d for d in map(destination, replies(events)) if d is not None]
    assert len(mutated) <= 1
    assert set(mutated) <= {"", A}


@quick
@given(modes, st.booleans(), st.lists(bodies, max_size=6), st.booleans(), st.booleans())
def test_the_legal_course_of_a_request_is_no_violation(
    mode: int, no_wait: bool, chunks: list[bytes], trailers: bool, slow: bool
) -> None:
    """Headers, chunks, trailers; the choice comes as soon as it is asked for, or at the end."""
    machine = session()
    sent = [request_headers(mode, no_wait=no_wait, end=not chunks and not trailers)]
    sent += [request_body(chunk) for chunk in chunks]
    if trailers:
        sent.append(request_trailers())
    elif chunks:
        sent[-1].request_body.end_of_stream = True
    events: list[Event] = []
    for message in sent:
        events += machine.receive(message)
        if not slow and some(events, DecisionDue):
            events += machine.decide(Choice((A,)))
    events += machine.decide(Choice((A,)))
    assert not some(events, Violation)
    assert some(events, DecisionDue) or mode in {BUFFERED, PARTIAL, 17}
    order = [kind for kind, after in pairwise([*kinds(events), ""]) if kind != after]
    expected = [m.WhichOneof("request") for m in sent]
    assert order == [kind for kind, after in pairwise([*expected, ""]) if kind != after] or (
        mode == DUPLEX and trailers and not any(chunks)
    )
    if mode == DUPLEX:
        body, ends = echoed(events)
        assert body == b"".join(chunks)
        assert ends.count(True) == (1 if chunks and not trailers else 0)
        assert not any(ends[:-1])


@st.composite
def cuts(draw: st.DrawFn, body: bytes) -> list[bytes]:
    places = draw(st.lists(st.integers(0, len(body)), max_size=6).map(sorted))
    return [body[start:end] for start, end in pairwise([0, *places, len(body)])]


@quick
@given(
    st.data(),
    st.binary(max_size=60),
    st.integers(0, 40),
    st.sampled_from([STREAMED, DUPLEX]),
    st.booleans(),
    st.sampled_from(["with the last chunk", "apart", "trailers"]),
)
def test_the_decision_sees_the_same_however_a_body_is_cut(
    data: st.DataObject, body: bytes, window: int, mode: int, told: bool, end: str
) -> None:
    machine = session(window=window)
    length = [("content-length", str(len(body)))] if told else []
    events = machine.receive(request_headers(mode, *length, no_wait=True))
    chunks = data.draw(cuts(body))
    for chunk in chunks[:-1]:
        events += machine.receive(request_body(chunk))
    events += machine.receive(request_body(chunks[-1], end=end == "with the last chunk"))
    if end == "apart":
        events += machine.receive(request_body(end=True))
    elif end == "trailers":
        events += machine.receive(request_trailers())
    due = only(events, DecisionDue)
    assert (due.body, due.complete) == (body[:window], len(body) <= window)


addresses = st.sampled_from([A, B, "10.0.0.2:80", "[2001:db8::1]:8000"])


@quick
@given(modes, st.booleans(), st.booleans(), st.lists(addresses, unique=True, max_size=3))
def test_header_and_metadata_never_name_different_replicas(
    mode: int, no_wait: bool, bodiless: bool, ranked: list[str]
) -> None:
    machine = session()
    machine.receive(request_headers(mode, no_wait=no_wait, end=bodiless))
    if not bodiless:
        machine.receive(request_body(b"{}", end=True))

    told = replies(machine.decide(Choice(tuple(ranked))))

    named = [value for value in map(destination, told) if value is not None]
    fields = [message.dynamic_metadata.fields["envoy.lb"].struct_value for message in told]
    metadata = [each[DESTINATION] for each in fields if DESTINATION in each]
    assert named == [",".join(ranked)]
    assert metadata == (named if ranked else [])
