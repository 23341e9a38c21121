"""The response's direction of a stream: who served, and when it is over."""

from typing import Any

from extproc.processing.events import Event, Reply, ResponseEnded, Violation
from extproc.processing.modes import ASSUMED, response_rules
from extproc.processing.order import NEXT, PART, Part, Place
from extproc.processing.replies import ACKNOWLEDGED, Kind, Piece, acknowledge, explained
from extproc.processing.wire import HeaderView, attributes_of, responded_of, served_of


class ResponseSide:
    """Responses in; acknowledgements, one ``Responded`` and one ``ResponseEnded`` out.

    Attributes:
        explanation: What to tell the client of the choice in a header; empty for nothing.
    """

    __slots__ = ("_answer", "_ended", "_place", "_responded", "explanation")

    def __init__(self) -> None:
        self._answer = ASSUMED.answer
        self._place = Place.START
        self._responded = False
        self._ended = False
        self.explanation = ""

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
        # Some versions send no headers of their own replies: the attributes may come later.
        if not self._responded and (part is Part.HEADERS or message.attributes):
            self._responded = True
            headers = HeaderView(message.response_headers.headers)
            events.append(responded_of(attributes_of(message), headers, served_of(message)))
        ended = _ends(kind, message)
        if ended:
            self._place = Place.END
            if not self._ended:
                self._ended = True
                events.append(_ENDED)
        if part is Part.HEADERS and self.explanation:
            events.append(Reply(explained(self.explanation)))
        elif part is not Part.BODY or self._answer is acknowledge:
            events.append(ACKNOWLEDGED[kind])
        else:
            envelope, late = message.response_body, before is Place.END
            piece = Piece(kind, envelope.body, ended and not late, envelope, late)
            events += map(Reply, self._answer(piece))
        return events


_ENDED = ResponseEnded()


def _ends(kind: Kind, message: Any) -> bool:
    """Whether the response ends with a message."""
    if kind is Kind.RESPONSE_TRAILERS:
        return True
    if kind is Kind.RESPONSE_HEADERS:
        return bool(message.response_headers.end_of_stream)
    envelope = message.response_body
    return bool(envelope.end_of_stream or envelope.end_of_stream_without_message)
