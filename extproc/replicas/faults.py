"""What a response tells about the replicas that were asked. Pure."""

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import NamedTuple

from extproc.processing.events import Responded


class Fault(StrEnum):
    """What was wrong with a replica. A label of the metrics."""

    ERROR = "error"
    """It answered with a status of 500 or more."""
    REFUSED = "refused"
    """Envoy could not connect."""
    RESET = "reset"
    """The connection broke before a response."""
    TIMEOUT = "timeout"
    """Envoy's time for the request ran out."""
    RETRIED = "retried"
    """Envoy tried another replica after it."""
    HANG = "hang"
    """No response began for long, while others answered."""
    CHECK = "check"
    """It did not pass its health checks."""


class Finding(NamedTuple):
    """What one response says of one replica: a fault, or None for an answer."""

    address: str
    fault: Fault | None


# Envoy's response flags as bits. Source: envoy/stream_info/stream_info.h, CoreResponseFlag.
_TIMEOUT = 1 << 2
_RESETS = 1 << 3 | 1 << 4 | 1 << 6  # local reset, remote reset, connection termination
_REFUSED = 1 << 5
_OVERFLOW = 1 << 7  # of Envoy's own circuit breaker: no fault of the replica


def findings(event: Responded, ranked: Sequence[str]) -> Iterator[Finding]:
    """What a response says of the replica that served, and of those that Envoy tried before it.

    Args:
        event: The response.
        ranked: The destinations that Envoy was told, in order.
    """
    for tried in ranked[: max(0, event.attempts - 1)]:
        if tried != event.address:
            yield Finding(tried, Fault.RETRIED)
    if not event.address or event.flags & _OVERFLOW:
        return
    if event.details == "via_upstream" or (0 < event.status < 500 and not event.details):
        yield Finding(event.address, Fault.ERROR if event.status >= 500 else None)
        return
    fault = _local_fault(event)
    if fault is not None:
        yield Finding(event.address, fault)


def _local_fault(event: Responded) -> Fault | None:
    """Why Envoy answered itself."""
    if event.flags & _TIMEOUT:
        return Fault.TIMEOUT
    if event.flags & _REFUSED:
        return Fault.REFUSED
    if event.flags & _RESETS or event.details.startswith("upstream_reset"):
        return Fault.RESET
    return None
