"""The ext_proc protocol without I/O: messages in, messages and events out."""

from extproc.processing.events import (
    Answer,
    BodyMode,
    Choice,
    DecisionDue,
    Event,
    Refusal,
    Reply,
    RequestHead,
    Responded,
    ResponseEnded,
    Violation,
)
from extproc.processing.replies import (
    DESTINATION,
    ECHO_LIMIT,
    EXPLAIN,
    FACTS_NAMESPACE,
    LB_NAMESPACE,
    REFUSED,
)
from extproc.processing.session import DEFAULT_WINDOW, Session
from extproc.processing.wire import (
    attributes_of,
    canonical_address,
    canonical_host,
    head_of,
    metadata_of,
    responded_of,
)

__all__ = [
    "DEFAULT_WINDOW",
    "DESTINATION",
    "ECHO_LIMIT",
    "EXPLAIN",
    "FACTS_NAMESPACE",
    "LB_NAMESPACE",
    "REFUSED",
    "Answer",
    "BodyMode",
    "Choice",
    "DecisionDue",
    "Event",
    "Refusal",
    "Reply",
    "RequestHead",
    "Responded",
    "ResponseEnded",
    "Session",
    "Violation",
    "attributes_of",
    "canonical_address",
    "canonical_host",
    "head_of",
    "metadata_of",
    "responded_of",
]
