"""One ext_proc stream, which is one HTTP request and its response."""

from collections.abc import Callable
from typing import Any

from extproc.processing.budget import Budget
from extproc.processing.events import Answer, Choice, Event, RequestHead, Violation
from extproc.processing.replies import Kind
from extproc.processing.request import RequestSide
from extproc.processing.response import ResponseSide

DEFAULT_WINDOW = 512 * 1024

_KIND: dict[str | None, Kind] = {kind.value: kind for kind in Kind}
_NOBODY = Choice()
_REQUEST_KINDS = {Kind.REQUEST_HEADERS, Kind.REQUEST_BODY, Kind.REQUEST_TRAILERS}


class Session:
    """A state machine without I/O: messages in, events out.

    After ``DecisionDue`` more messages may come before ``decide`` is called; what they are owed is
    remembered. No sequence of messages raises.

    Protocol: ``envoy/service/ext_proc/v3/external_processor.proto``.

    Args:
        readable: Whether the prompt of a request with this head can be read. If not, the choice
            is made at its headers.
        window: Most bytes of a body that are looked at.
        budget: Bytes that all sessions together may keep; ``abandon`` gives back what one has.
    """

    __slots__ = ("_configured", "_request", "_response")

    def __init__(
        self,
        *,
        readable: Callable[[RequestHead], bool],
        window: int = DEFAULT_WINDOW,
        budget: Budget | None = None,
    ) -> None:
        self._request = RequestSide(readable, window, budget or Budget())
        self._response = ResponseSide()
        self._configured = False

    def receive(self, message: Any) -> list[Event]:
        """Take a ``ProcessingRequest`` in.

        Returns:
            What follows from it, in order. At most one ``DecisionDue``, ``Responded`` and
            ``ResponseEnded`` in a session's life.
        """
        events = [] if self._configured else self._configure(message)
        kind = _KIND.get(message.WhichOneof("request"))
        if kind is None:
            events.append(Violation("message without content"))
        elif kind in _REQUEST_KINDS:
            events += self._request.receive(kind, message)
        else:
            # A response before the choice is Envoy's own (a timeout, a body too large): choosing
            # is moot, and nothing of the request may stay unanswered.
            events += self.abandon()
            events += self._response.receive(kind, message)
        return events

    def idle(self) -> list[Event]:
        """Tell that nothing came for ``patience`` seconds."""
        return self._request.idle()

    def decide(self, answer: Answer) -> list[Event]:
        """Answer ``DecisionDue``.

        Returns:
            ``Reply`` events in order; none if the answer is moot by now.
        """
        if isinstance(answer, Choice) and answer.explanation:
            self._response.explanation = answer.explanation
        return self._request.decide(answer)

    def abandon(self) -> list[Event]:
        """Give up choosing: answer all that is owed, so that Envoy chooses by its own policy.

        May be called at any time; after a choice it does nothing.
        """
        return self._request.settle(_NOBODY)

    @property
    def patience(self) -> float | None:
        """Seconds after the last message at which ``idle`` is due; None: wait for ever."""
        return self._request.patience

    def _configure(self, message: Any) -> list[Event]:
        """Take the modes from the stream's first message, the only one that tells them."""
        self._configured = True
        told = message.HasField("protocol_config")
        config = message.protocol_config if told else None
        self._request.configure(config)
        self._response.configure(config)
        return [] if told else [Violation("first message without protocol_config")]
