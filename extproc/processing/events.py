"""The small values that a session hands out and takes in.

Named tuples: there are several for each request, and a frozen dataclass takes four times as long
to make.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final, NamedTuple

_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})


class BodyMode(StrEnum):
    """How Envoy hands a request body over (``ProcessingMode.BodySendMode``)."""

    NONE = "none"
    BUFFERED = "buffered"
    BUFFERED_PARTIAL = "buffered_partial"
    STREAMED = "streamed"
    FULL_DUPLEX_STREAMED = "full_duplex_streamed"


class RequestHead(NamedTuple):
    """What the first message tells of a request.

    Attributes:
        headers: Name to values in order of arrival; names lower case, pseudo-headers included.
            Values are decoded as UTF-8 with surrogate escapes, so every byte survives.
        attributes: The request attributes that Envoy was configured to send, flattened over
            namespaces (``xds.cluster_name`` …).
        metadata: Namespace to fields of the forwarded dynamic metadata.
        mode: How the request body arrives.
        end_of_stream: Whether the request has no body.
    """

    headers: Mapping[str, Sequence[str]]
    attributes: Mapping[str, Any]
    metadata: Mapping[str, Mapping[str, Any]]
    mode: BodyMode
    end_of_stream: bool

    def header(self, name: str) -> str:
        """The first value of the header ``name`` (lower case), or an empty string."""
        values = self.headers.get(name)
        return values[0] if values else ""


class DecisionDue(NamedTuple):
    """The session needs a choice now: answer it with ``Session.decide``.

    Attributes:
        head: The request's head.
        body: What has arrived of the body; empty where the prompt cannot be read.
        complete: Whether ``body`` is the whole body.
    """

    head: RequestHead
    body: bytes
    complete: bool


class Responded(NamedTuple):
    """The response began (or Envoy answered itself).

    Attributes:
        address: Who served, canonical ``ip:port``; empty where nobody did.
        attempts: How often Envoy sent the request to a replica; 0 where not told.
        status: The HTTP status; 0 where not told.
        flags: Envoy's response flags as a bit set.
        details: Envoy's ``response.code_details``.
        headers: Response headers, as in ``RequestHead``.
    """

    address: str
    attempts: int
    status: int
    flags: int
    details: str
    headers: Mapping[str, Sequence[str]] = _NOTHING


class Reply(NamedTuple):
    """One message to send to Envoy, in order."""

    message: Any


class ResponseEnded(NamedTuple):
    """Envoy told the response's end (its last body chunk or its trailers)."""


class Violation(NamedTuple):
    """Envoy sent what the protocol does not allow here; the session went on as well as it could.

    Attributes:
        what: One of few fixed sentences: a metrics label, so never content.
    """

    what: str


Event = DecisionDue | Responded | Reply | ResponseEnded | Violation


class Choice(NamedTuple):
    """What to answer to ``DecisionDue``.

    Attributes:
        destinations: Replicas in order of preference, canonical ``ip:port``; empty leaves the
            choice to Envoy.
        facts: Extra dynamic metadata in our own namespace ``prefix_extproc`` (reason, matched
            tokens …), for access logs.
        explanation: Value of the response header ``x-prefix-explain``; empty for no such header.
    """

    destinations: Sequence[str] = ()
    facts: Mapping[str, str | float | bool] = _NOTHING
    explanation: str = ""


class Refusal(NamedTuple):
    """The other answer to ``DecisionDue``: the client gets an answer, and no replica the request.

    Attributes:
        status: The HTTP status, 503 or 429.
        reason: A word for machines, in the header ``x-prefix-refused``.
        message: A sentence for people.
        retry_after_s: Seconds after which the client may try again; 0 for nothing to tell.
        facts: As in ``Choice``.
        explanation: As in ``Choice``.
    """

    status: int
    reason: str
    message: str
    retry_after_s: int = 0
    facts: Mapping[str, str | float | bool] = _NOTHING
    explanation: str = ""


Answer = Choice | Refusal
