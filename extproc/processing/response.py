"""The response's direction of a stream: who served, and when it is over."""

from typing import Any

from extproc.processing.events import Event, Reply, ResponseEnded, Violation
from extproc.processing.modes import ASSUMED, response_rules
from extproc.processing.order import NEXT, PART, Part, Place
from extproc.processing.replies import ACKNOWLEDGED, Kind, Piece, acknowledge
from extproc.processing.wire import HeaderView, attributes_of, responded_of


class ResponseSide:
    """Responses in; acknowledgements, one ``Responded`` and one ``ResponseEnded`` out."""

    __slots__ = ("_answer", "_ended", "_place", "_responded")

    def __init__(self) -> None:
        self._answer = ASSUMED.answer
        self._place = Place.START
        self._responded = False
        self._ended = False

    def configure(self, config: Any) -> None:
        """Take the mode from the ``ProtocolConfiguration`` of the first message, or None."""
        self._answer = response_rules(config).answer

    def receive(self, kind: Kind, message: Any) -> list[Event]:
        """Take one response message in.

        What the server has to note comes before the reply: Envoy lets the client go on at the
        reply, and its next request should find the books closed.
        """
        part, before = PART[kind], self._place
        self._place, fault = NEXT[before, part]
        events: list[Event] = [Violation(f"response {fault}")] if fault else []
        piece, ended = _read(kind, message)
        # Some versions send no headers of their own replies: the attributes may come later.
        if not self._responded and (part is Part.HEADERS or message.attributes):
            self._responded = True
            headers = HeaderView(message.response_headers.headers)
            events.append(responded_of(attributes_of(message), headers))
        if ended:
            self._place = Place.END
            piece = piece._replace(end=part is Part.BODY and before is not Place.END)
        if ended and not self._ended:
            self._ended = True
            events.append(ResponseEnded())
        if part is not Part.BODY or self._answer is acknowledge:
            events.append(ACKNOWLEDGED[kind])
        else:
            events += map(Reply, self._answer(piece))
        return events


def _read(kind: Kind, message: Any) -> tuple[Piece, bool]:
    if kind is Kind.RESPONSE_TRAILERS:
        return Piece(kind), True
    if kind is Kind.RESPONSE_HEADERS:
        return Piece(kind), message.response_headers.end_of_stream
    envelope = message.response_body
    ended = envelope.end_of_stream or envelope.end_of_stream_without_message
    return Piece(kind, envelope.body, envelope=envelope), ended
