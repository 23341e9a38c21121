"""Spans of decisions, sent to a collector."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from extproc.affinity import Reservation
from extproc.routing import Decision
from tests.server.collector import Collector, Span
from tests.server.conftest import STATIC, Serve, Served
from tests.server.messages import (
    GET,
    JSON,
    chat,
    destinations,
    request_body,
    request_headers,
    response_headers,
    response_trailers,
)
from tests.server.test_stream import LONG, end, exchange

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
OTHER = "4bf92f3577b34da6a3ce929d0e0e4736"
ENVOYS = ("traceparent", f"00-{TRACE}-{PARENT}-01")


@pytest.fixture
async def collector(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Collector]:
    async with Collector() as started:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", started.url)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20key")
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
        yield started


async def route(served: Served, *metadata: tuple[str, str], **headers: str) -> str:
    """A whole request; the replica that served it."""
    call = served.open((*STATIC, *metadata))
    replies = await exchange(call, request_headers(JSON | headers), request_body(chat(LONG)))
    replica: str = destinations(replies)[0]
    await exchange(call, response_headers(replica), response_trailers())
    await end(call)
    return replica


async def test_joins_envoys_trace_and_tells_the_decision(
    serve: Serve, collector: Collector
) -> None:
    served = await serve()
    replica = await route(served)
    await route(served, ENVOYS)
    span = await collector.wait_for(lambda span: span.trace == TRACE)

    assert (span.parent, span.name, span.service) == (
        PARENT,
        "prefix_extproc.route",
        "prefix-extproc",
    )
    told = span.attributes
    total = told.pop("prefix_extproc.total_tokens")
    assert 0 < told.pop("prefix_extproc.matched_tokens") <= total
    assert sorted(told.pop("prefix_extproc.ranked")) == [
        "10.0.0.1:80",
        "10.0.0.2:80",
        "10.0.0.3:80",
    ]
    assert told == {
        "prefix_extproc.pool": "llm",
        "prefix_extproc.strategy": "kv_aware",
        "prefix_extproc.mode": "enforce",
        "prefix_extproc.reason": "matched",
        "prefix_extproc.replica": replica,
        "prefix_extproc.served": replica,
        "prefix_extproc.store": "memory",
        "http.response.status_code": 200,
    }
    assert set(collector.headers) == {"Bearer key"}


async def test_times_are_in_order(serve: Serve, collector: Collector) -> None:
    await route(await serve(), ENVOYS)
    raw = (await collector.wait_for(lambda span: span.trace == TRACE)).raw

    (read,) = raw["events"]
    assert read["name"] == "prompt read"
    assert int(raw["startTimeUnixNano"]) <= int(read["timeUnixNano"]) <= int(raw["endTimeUnixNano"])


async def test_a_clients_trace_counts_where_envoy_has_none(
    serve: Serve, collector: Collector
) -> None:
    served = await serve()
    await route(served, ENVOYS, traceparent=f"00-{OTHER}-{PARENT}-01")
    await route(served, traceparent=f"00-{OTHER}-{PARENT}-01")
    await route(served, traceparent="00-nonsense")

    assert (await collector.wait_for(lambda span: span.trace == TRACE)).parent == PARENT
    assert (await collector.wait_for(lambda span: span.trace == OTHER)).parent == PARENT
    assert (await collector.wait_for(lambda span: span.trace not in {TRACE, OTHER})).parent == ""
    assert len(collector.spans) == 3


async def test_what_envoy_does_not_sample_is_not_sent(serve: Serve, collector: Collector) -> None:
    served = await serve()
    await route(served, ("traceparent", f"00-{OTHER}-{PARENT}-00"))
    await route(served, ENVOYS)
    await collector.wait_for(lambda span: span.trace == TRACE)

    assert [span.trace for span in collector.spans] == [TRACE]


async def test_names_are_the_environments(
    serve: Serve, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "router")
    await route(await serve(), ENVOYS)

    assert (await collector.wait_for(lambda span: span.trace == TRACE)).service == "router"


async def test_a_fault_is_an_error_and_ends_like_any_other(
    serve: Serve, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(_reservation: Reservation) -> Decision:
        raise RuntimeError("secret")

    served = await serve()
    monkeypatch.setattr(served.app.store, "reserve", fail)
    call = served.open((*STATIC, ENVOYS))
    await exchange(call, request_headers(GET, end_of_stream=True))
    await end(call)
    span: Span = await collector.wait_for(lambda span: span.trace == TRACE)

    status: dict[str, Any] = span.raw["status"]
    assert status == {"code": 2, "message": "no decision: left to Envoy"}
    assert span.attributes["prefix_extproc.reason"] == "fallback"
    assert "prefix_extproc.replica" not in span.attributes


async def test_what_waits_is_sent_at_the_end(
    serve: Serve, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "3600000")
    served = await serve()
    await route(served, ENVOYS)
    assert not collector.spans

    await served.stop()

    assert [span.trace for span in collector.spans] == [TRACE]


async def test_an_end_does_not_wait_for_a_collector_that_is_gone(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setattr("extproc.server.spans._PATIENCE_S", 0.1)
    served = await serve()
    replica = await route(served, ENVOYS)
    await served.stop()

    assert replica
    assert served.running.done()


async def test_nothing_is_made_where_nobody_asks(serve: Serve) -> None:
    assert (await serve()).app.router.tracer is None
