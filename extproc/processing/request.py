"""The request's direction of a stream: read enough, ask for a choice, answer what is owed."""

from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import Any

from extproc.processing.budget import Budget
from extproc.processing.events import (
    Answer,
    Choice,
    DecisionDue,
    Event,
    Refusal,
    Reply,
    RequestHead,
    Violation,
)
from extproc.processing.modes import ASSUMED, Rules, Until, for_request, request_rules
from extproc.processing.order import NEXT, PART, Part, Place
from extproc.processing.replies import (
    ACKNOWLEDGED,
    BARE,
    Kind,
    Piece,
    acknowledge,
    decide,
    mirror,
    refuse,
)
from extproc.processing.wire import content_length, head_of

SLOW_START = 32 * 1024
"""Bytes below which a gap is a client's round trip rather than a full buffer of Envoy's."""

PATIENCE_BELOW, PATIENCE_ABOVE = 1.0, 0.05
"""Seconds without a chunk after which a body counts as stalled, below and above SLOW_START."""


class _State(Enum):
    READING = auto()
    DUE = auto()
    SETTLED = auto()
    REFUSED = auto()

    __hash__ = object.__hash__  # members are looked up; Enum's own hash is a call of Python code


_OVER = frozenset({_State.SETTLED, _State.REFUSED})


class _Collected:
    """The first bytes of a body, at most ``window`` of them, and how many there were.

    Where the budget of all bodies has no room, the window ends there: the body counts as cut.
    """

    __slots__ = ("_budget", "_chunks", "_kept", "_window", "ended", "length", "received")

    def __init__(self, window: int, budget: Budget) -> None:
        self._chunks: list[bytes] = []
        self._kept = 0
        self._budget = budget
        self._window = window
        self.received = 0
        self.ended = False
        self.length: int | None = None  # as the client declared it

    def add(self, body: bytes) -> None:
        room = self._window - self.received
        if body and room > 0:
            part = body[:room]  # without a copy where all of it fits
            if self._budget.take(len(part)):
                self._kept += len(part)
                self._chunks.append(part)
            else:
                self._window = self.received
        self.received += len(body)

    def take(self) -> bytes:
        chunks, self._chunks = self._chunks, []
        self._budget.give_back(self._kept)
        self._kept = 0
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    @property
    def enough(self) -> bool:
        # Above the window, not at it: so whether a body was complete does not depend on how it
        # was cut into chunks. Content-length only hastens: a wrong one cannot hold anything up.
        reached = self.length is not None and self.received >= max(self.length, 1)
        return self.ended or reached or self.received > self._window

    def complete(self, *, whole: bool) -> bool:
        all_came = self.ended or whole or self.received == self.length
        return all_came and self.received <= self._window


_ENOUGH: dict[Until, Callable[[_Collected, Part], bool]] = {
    Until.HEADERS: lambda _collected, _part: True,
    Until.MESSAGE: lambda _collected, part: part is not Part.HEADERS,
    Until.PREFIX: lambda collected, _part: collected.enough,
}


class RequestSide:
    """Requests in, replies and one ``DecisionDue`` out.

    What Envoy waits for is remembered as a queue of pieces until the choice is there. The choice
    rides on the first of them; then each message is answered as it comes. A refusal answers all of
    them at once, and what is still on its way: Envoy ends the stream.
    """

    __slots__ = (
        "_choice",
        "_collected",
        "_head",
        "_owed",
        "_place",
        "_readable",
        "_rules",
        "_state",
    )

    def __init__(
        self, readable: Callable[[RequestHead], bool], window: int, budget: Budget
    ) -> None:
        self._readable = readable
        self._collected = _Collected(window, budget)
        self._head: RequestHead | None = None
        self._rules: Rules = ASSUMED
        self._place = Place.START
        self._state = _State.READING
        self._owed: list[Piece] = []
        self._choice: Choice | None = None  # until it has been sent

    def configure(self, config: Any) -> None:
        """Take the modes from the ``ProtocolConfiguration`` of the first message, or None."""
        self._rules = request_rules(config)

    def receive(self, kind: Kind, message: Any) -> list[Event]:
        """Take one request message in."""
        if self._state is _State.REFUSED:
            return []
        head = self._head or self._open(message)
        part, before = PART[kind], self._place
        self._place, fault = NEXT[before, part]
        events: list[Event] = [Violation(f"request {fault}")] if fault else []
        ended = self._read(kind, message)
        if ended:
            self._place = Place.END
            self._collected.ended = True
        piece = self._piece(kind, message, end=ended, late=before is Place.END)
        if self._state is _State.SETTLED or (
            part is Part.HEADERS and self._rules.until is Until.MESSAGE
        ):
            events += self._answers(piece)
        else:
            self._owed.append(piece)
        if self._state is _State.READING and _ENOUGH[self._rules.until](self._collected, part):
            events.append(self._due(head))
        return events

    def idle(self) -> list[Event]:
        """Nothing came for ``patience`` seconds: choose by what there is."""
        if self.patience is None or self._head is None:
            return []
        return [self._due(self._head)]

    def decide(self, answer: Answer) -> list[Event]:
        """Answer ``DecisionDue``. Nothing happens if it was never asked or is moot by now."""
        if self._state is not _State.DUE:
            return []
        if isinstance(answer, Refusal):
            self._state = _State.REFUSED
            self._collected.take()
            self._owed.clear()
            return [Reply(refuse(answer))]
        return self.settle(answer)

    def settle(self, choice: Choice) -> list[Event]:
        """Pay what is owed and hold nothing back any more, asked or not. Once."""
        if self._state in _OVER:
            return []
        self._state, self._choice = _State.SETTLED, choice
        self._collected.take()
        owed, self._owed = self._owed, []
        return [reply for piece in owed for reply in self._answers(piece)]

    @property
    def patience(self) -> float | None:
        """Seconds after the last message at which ``idle`` is due; None: never."""
        if self._rules.until is not Until.PREFIX or self._state is not _State.READING:
            return None
        received = self._collected.received
        if not received:
            return None
        return PATIENCE_BELOW if received < SLOW_START else PATIENCE_ABOVE

    def _open(self, message: Any) -> RequestHead:
        head = self._head = head_of(message, self._rules.mode)
        self._rules = for_request(self._rules, head, readable=self._readable(head))
        self._collected.length = content_length(head)
        return head

    def _read(self, kind: Kind, message: Any) -> bool:
        """Keep what of a message is needed for the choice; whether the request ends with it."""
        if kind is Kind.REQUEST_TRAILERS:
            return True
        if kind is Kind.REQUEST_HEADERS:
            return bool(message.request_headers.end_of_stream)
        envelope = message.request_body
        if self._state is _State.READING:
            self._collected.add(envelope.body)
        return bool(envelope.end_of_stream or envelope.end_of_stream_without_message)

    def _piece(self, kind: Kind, message: Any, *, end: bool, late: bool) -> Piece:
        """What of a message is needed for its reply."""
        answer = self._rules.answer
        if kind is not Kind.REQUEST_BODY or answer is acknowledge:
            return BARE[kind]
        envelope = message.request_body
        kept = envelope if answer is mirror else None
        return Piece(kind, envelope.body, end and not late, kept, late)

    def _due(self, head: RequestHead) -> DecisionDue:
        self._state = _State.DUE
        collected = self._collected
        return DecisionDue(head, collected.take(), collected.complete(whole=self._rules.whole))

    def _answers(self, piece: Piece) -> Sequence[Reply]:
        choice, kind = self._choice, piece.kind
        answer = self._rules.answer if kind is Kind.REQUEST_BODY else acknowledge
        if choice is None and answer is acknowledge:
            return (ACKNOWLEDGED[kind],)
        messages = answer(piece)
        if choice is None or not messages:
            return [Reply(message) for message in messages]
        self._choice = None
        first = decide(messages[0], kind, choice, release=self._rules.release)
        return [Reply(first), *map(Reply, messages[1:])]
