"""Whether decisions are traced: OpenTelemetry's own environment variables tell.

Source: "OpenTelemetry Environment Variable Specification" and "OpenTelemetry Protocol Exporter".
"""

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import structlog

from extproc.processing.events import RequestHead
from extproc.server.decision_log import Entry

_log = structlog.get_logger(__name__)

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_EXPORTER = "OTEL_TRACES_EXPORTER"
_HTTP = frozenset({"http/json", "http/protobuf"})  # one port and one path for both


class Span(Protocol):
    """One request's decision on its way into a trace. Each is told once, in this order."""

    def due(self, head: RequestHead) -> None:
        """The request was read as far as it has to be."""

    def decided(self) -> None:
        """The decision is made, whatever it is."""

    def end(self, entry: Entry) -> None:
        """The response ended. Without this nothing is told of the request."""


class Tracer(Protocol):
    """Where spans are made and sent."""

    def span(self, metadata: Iterable[Any]) -> Span:
        """A span that starts now, of a stream with this initial metadata."""

    def close(self) -> None:
        """Send what waits, for a few seconds at most."""


def open_tracer(environment: Mapping[str, str], *, store: str, router: str) -> Tracer | None:
    """The tracer that an environment asks for, or None.

    Variables that cannot be met cost the traces, and one line in the log; never the process, since
    an operator may put them into all containers of a cluster.

    Args:
        environment: The process's.
        store: The kind of the store that routers share.
        router: This process's name among all routers.
    """
    given = {name: value.strip() for name, value in environment.items() if value.strip()}
    if not _asked_for(given) or not _possible(given):
        return None
    try:
        from extproc.server.spans import Spans  # noqa: PLC0415  # an extra

        return Spans(store=store, router=router)
    except ImportError:
        _refuse(_asking(given), "", "pip install 'prefix-extproc[otel]' brings what it needs")
    except (ValueError, OSError) as error:  # as OpenTelemetry words what is wrong
        _refuse("OTEL_*", "", str(error))
    return None


def _asked_for(environment: Mapping[str, str]) -> bool:
    off = (
        environment.get("OTEL_SDK_DISABLED", "").lower() == "true"
        or environment.get(_EXPORTER, "").lower() == "none"
    )
    return not off and bool(_asking(environment))


def _possible(environment: Mapping[str, str]) -> bool:
    """Whether this server speaks what is asked for."""
    exporter = environment.get(_EXPORTER, "otlp")
    if exporter.lower() != "otlp":
        _refuse(_EXPORTER, exporter, "otlp is what this server has")
        return False
    name = next((name for name in _PROTOCOLS if name in environment), "")
    if name and environment[name] not in _HTTP:
        _refuse(
            name,
            environment[name],
            "http/json is what this server speaks: name the collector's port for HTTP, mostly 4318",
        )
        return False
    return True


def _asking(environment: Mapping[str, str]) -> str:
    """The variable that asks for traces, or an empty string."""
    return next((name for name in (*_ENDPOINTS, _EXPORTER) if name in environment), "")


def _refuse(key: str, value: str, cure: str) -> None:
    # Endpoints are told by name alone: their value may hold a password.
    _log.error(
        "decisions are not traced", key=key, **({"value": value} if value else {}), cure=cure
    )
