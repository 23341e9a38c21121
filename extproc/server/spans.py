"""Decisions as spans of OpenTelemetry, in the trace that Envoy began."""

import os
import threading
from collections.abc import Iterable, Mapping
from time import time_ns
from typing import Any

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.json.http import OTLPSpanExporter
from opentelemetry.propagate import get_global_textmap
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind, Status, StatusCode, get_current_span

from extproc import __version__
from extproc.processing.events import RequestHead
from extproc.routing import Reason
from extproc.server.decision_log import Entry

NAME = "prefix_extproc.route"
_PREFIX = "prefix_extproc."
_PATIENCE_S = 5.0


class Spans:
    """Makes spans and sends them by OTLP, from a thread of the SDK, in batches.

    Where to, what of them and as whose is in OpenTelemetry's environment variables
    (``OTEL_EXPORTER_OTLP_*``, ``OTEL_TRACES_SAMPLER``, ``OTEL_SERVICE_NAME`` …). Spans that cannot
    be sent are dropped and logged by the SDK.

    Args:
        store: The kind of the store that routers share.
        router: This process's name among all routers.
    """

    def __init__(self, *, store: str, router: str) -> None:
        self.store = store
        self._provider = TracerProvider(resource=_resource(router), shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        self.tracer = self._provider.get_tracer("prefix_extproc", __version__)
        self.fields = frozenset(get_global_textmap().fields)

    def span(self, metadata: Iterable[Any]) -> "RouteSpan":
        """See ``Tracer``."""
        return RouteSpan(self, metadata)

    def close(self) -> None:
        """See ``Tracer``."""
        # In a thread that may be left behind: the SDK itself waits for up to half a minute.
        ending = threading.Thread(target=self._provider.shutdown, daemon=True)
        ending.start()
        ending.join(_PATIENCE_S)


class RouteSpan:
    """From a request's arrival at the router to the decision; made when its response has ended.

    Args:
        spans: Where it goes.
        metadata: The stream's initial metadata, in which Envoy passes its own span on.
    """

    __slots__ = ("_came", "_decided", "_parent", "_read", "_spans")

    def __init__(self, spans: Spans, metadata: Iterable[Any]) -> None:
        self._spans = spans
        self._came = self._read = self._decided = time_ns()
        self._parent = _context(
            {key: value for key, value in metadata if key in spans.fields and type(value) is str}
        )

    def due(self, head: RequestHead) -> None:
        """See ``Span``."""
        self._read = time_ns()
        if not get_current_span(self._parent).get_span_context().is_valid:
            # Envoy traces nothing itself, but the client may.
            names = self._spans.fields & head.headers.keys()
            self._parent = _context({name: head.header(name) for name in names})

    def decided(self) -> None:
        """See ``Span``."""
        self._decided = time_ns()

    def end(self, entry: Entry) -> None:
        """See ``Span``."""
        span = self._spans.tracer.start_span(
            NAME, self._parent, kind=SpanKind.SERVER, start_time=self._came
        )
        if span.is_recording():
            span.add_event("prompt read", timestamp=self._read)
            span.set_attributes(self._attributes(entry))
            if entry.decision.reason is Reason.FALLBACK:
                span.set_status(Status(StatusCode.ERROR, "no decision: left to Envoy"))
        span.end(self._decided)

    def _attributes(self, entry: Entry) -> dict[str, Any]:
        decision, settings = entry.decision, entry.settings
        told: dict[str, str | int | list[str]] = {
            "pool": entry.pool,
            "strategy": settings.strategy.value,
            "mode": settings.mode.value,
            "reason": decision.reason.value,
            "matched_tokens": decision.matched_tokens,
            "total_tokens": decision.total_tokens,
        }
        if decision.ranked:
            told["replica"] = decision.ranked[0]
            told["ranked"] = list(decision.ranked)
            told["store"] = self._spans.store if decision.shared else "memory"
        if entry.served:
            told["served"] = entry.served
        attributes = {_PREFIX + name: value for name, value in told.items()}
        if entry.status:
            attributes["http.response.status_code"] = entry.status
        return attributes


def _context(carrier: Mapping[str, str]) -> Context:
    return get_global_textmap().extract(carrier, Context())


def _resource(router: str) -> Resource:
    """Who sends: what the environment says, and else the project's name."""
    found = Resource.create({"service.version": __version__, "service.instance.id": router})
    named = "OTEL_SERVICE_NAME" in os.environ or "service.name=" in os.environ.get(
        "OTEL_RESOURCE_ATTRIBUTES", ""
    )
    return found if named else found.merge(Resource({SERVICE_NAME: "prefix-extproc"}))
