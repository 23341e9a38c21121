"""What each body mode demands, as tables."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Any

from extproc.processing.events import BodyMode, RequestHead
from extproc.processing.replies import Piece, acknowledge, echo, mirror


class Until(Enum):
    """How much of a request has to arrive before the choice is made."""

    HEADERS = auto()
    """Its headers: nothing later can reach Envoy's router, or nothing later would matter."""
    MESSAGE = auto()
    """The one message with (the first part of) its body; the headers are answered at once."""
    PREFIX = auto()
    """Enough of a stream of chunks; the headers' reply is held back until then."""

    __hash__ = object.__hash__  # members are keys; Enum's own hash is a call of Python code


@dataclass(frozen=True, slots=True)
class Rules:
    """How to serve one body mode.

    Attributes:
        mode: Its name for the rest of the server.
        until: When to choose.
        answer: The replies to one body message.
        whole: Whether a body message is the whole body, even without ``end_of_stream``: before
            request trailers Envoy does not set it.
        release: Whether the reply to the headers has to ask Envoy not to collect the body.
    """

    mode: BodyMode
    until: Until
    answer: Callable[[Piece], Sequence[Any]] = acknowledge
    whole: bool = False
    release: bool = False


# By the numbers of ``ProcessingMode.BodySendMode``.
_RULES = {
    0: Rules(BodyMode.NONE, Until.HEADERS),
    1: Rules(BodyMode.STREAMED, Until.HEADERS),
    2: Rules(BodyMode.BUFFERED, Until.MESSAGE, whole=True),
    3: Rules(BodyMode.BUFFERED_PARTIAL, Until.MESSAGE),
    4: Rules(BodyMode.FULL_DUPLEX_STREAMED, Until.PREFIX, echo),
    5: Rules(BodyMode.FULL_DUPLEX_STREAMED, Until.HEADERS, mirror),  # gRPC: no readable prompt
}
_STREAMED_WITHOUT_WAITING = Rules(BodyMode.STREAMED, Until.PREFIX)

ASSUMED = _RULES[3]
"""Where Envoy does not tell its modes. It cannot stall in any of them: headers are answered at
once, as the buffered modes and NONE need it, the choice rides on the first body message, and
every further one is acknowledged, as STREAMED needs it. The price: in NONE and STREAMED the
choice comes too late and is Envoy's."""


def request_rules(config: Any) -> Rules:
    """The rules for a request's body, from the ``ProtocolConfiguration``."""
    if config is None:
        return ASSUMED
    rules = _RULES.get(config.request_body_mode, ASSUMED)
    if rules.mode is BodyMode.STREAMED and config.send_body_without_waiting_for_header_response:
        return _STREAMED_WITHOUT_WAITING
    return rules


def response_rules(config: Any) -> Rules:
    """The rules for a response's body; only their ``answer`` matters."""
    return ASSUMED if config is None else _RULES.get(config.response_body_mode, ASSUMED)


def for_request(rules: Rules, head: RequestHead, *, readable: bool) -> Rules:
    """The rules for one request: without a readable body the headers are all there is to know.

    Bytes of an upgraded connection are no body; its messages come and go until it closes, and
    each must be answered. The buffered modes would wait for the end of it, and refuse what is
    larger than their buffer, so where there is nothing to read they are asked to let go.
    """
    if readable and not head.end_of_stream and not is_upgrade(head):
        return rules
    release = rules.until is Until.MESSAGE and not head.end_of_stream
    return replace(rules, until=Until.HEADERS, whole=False, release=release)


def is_upgrade(head: RequestHead) -> bool:
    """Whether a request asks for another protocol: HTTP/1.1 upgrade, (extended) CONNECT."""
    return (
        "upgrade" in head.headers
        or ":protocol" in head.headers
        or head.header(":method") == "CONNECT"
    )
