"""An OpenTelemetry collector for tests: takes spans by OTLP over HTTP, and keeps them."""

import asyncio
import base64
from collections.abc import Callable
from typing import Any, NamedTuple, Self

from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


class Span(NamedTuple):
    """A span, with its resource's attributes.

    Attributes:
        trace: Hexadecimal.
        id: Hexadecimal.
        parent: Hexadecimal; empty for a root.
        raw: As OTLP's JSON has it; empty where it came as protobuf.
    """

    service: str
    name: str
    trace: str
    id: str
    parent: str
    raw: dict[str, Any]

    @property
    def attributes(self) -> dict[str, Any]:
        return {each["key"]: value_of(each["value"]) for each in self.raw["attributes"]}


class Collector:
    """Listens on a free port of 127.0.0.1."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.headers: list[str] = []
        self.port = 0
        app = web.Application()
        app.router.add_post("/v1/traces", self._take)
        self._runner = web.AppRunner(app, access_log=None)

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def wait_for(self, wanted: Callable[[Span], bool]) -> Span:
        """The first span that is wanted."""
        async with asyncio.timeout(20):
            while True:
                for span in self.spans:
                    if wanted(span):
                        return span
                await asyncio.sleep(0.02)

    async def _take(self, request: web.Request) -> web.Response:
        self.headers.append(request.headers.get("authorization", ""))
        if request.content_type == "application/json":
            self.spans += from_json(await request.json())
            return web.json_response({})
        self.spans += from_protobuf(await request.read())
        return web.Response(content_type="application/x-protobuf")


def from_json(body: dict[str, Any]) -> list[Span]:
    found = []
    for part in body["resourceSpans"]:
        resource = {each["key"]: value_of(each["value"]) for each in part["resource"]["attributes"]}
        for scope in part["scopeSpans"]:
            found += [
                Span(
                    resource["service.name"],
                    span["name"],
                    span["traceId"],
                    span["spanId"],
                    span.get("parentSpanId", ""),
                    span,
                )
                for span in scope["spans"]
            ]
    return found


def from_protobuf(body: bytes) -> list[Span]:
    """As Envoy sends them.

    The messages are of an old version, in which scopes have another name under the same number.
    """
    found = []
    for part in ExportTraceServiceRequest.FromString(body).resource_spans:
        names = {each.key: each.value.string_value for each in part.resource.attributes}
        for scope in part.instrumentation_library_spans:
            found += [
                Span(
                    names.get("service.name", ""),
                    span.name,
                    span.trace_id.hex(),
                    span.span_id.hex(),
                    span.parent_span_id.hex(),
                    {},
                )
                for span in scope.spans
            ]
    return found


def value_of(value: dict[str, Any]) -> Any:
    """A value of OTLP's JSON."""
    ((kind, content),) = value.items()
    if kind == "arrayValue":
        return [value_of(each) for each in content["values"]]
    if kind == "bytesValue":
        return base64.b64decode(content)
    return int(content) if kind == "intValue" else content
