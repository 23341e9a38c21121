"""The admin pages over HTTP."""

import socket
from typing import Any

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from tests.server.conftest import Serve, Served
from tests.server.messages import (
    chat,
    destinations,
    request_body,
    request_headers,
    response_headers,
)
from tests.server.test_stream import end, exchange, quiet

LONG = "All work and no play makes a long prompt. " * 100


async def get(served: Served, page: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as client, client.get(served.pages + page) as response:
        return response.status, await response.text()


async def get_json(served: Served, page: str) -> Any:
    async with aiohttp.ClientSession() as client, client.get(served.pages + page) as response:
        return await response.json()


async def request(served: Served) -> Any:
    """One request up to its response's headers."""
    call = served.open()
    replies = await exchange(call, request_headers(), request_body(chat(LONG)))
    await exchange(call, response_headers(destinations(replies)[0]))
    return call


async def samples(served: Served) -> dict[tuple[str, tuple[str, ...]], float]:
    """Name and label values to number."""
    _, text = await get(served, "/metrics")
    return {
        (sample.name, tuple(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def test_healthz_and_the_index(serve: Serve) -> None:
    served = await serve()

    assert await get(served, "/healthz") == (200, "ok\n")
    status, text = await get(served, "/")
    assert status == 200
    assert "/pools" in text
    assert (await get(served, "/nowhere"))[0] == 404


async def test_readyz(serve: Serve) -> None:
    served = await serve()

    assert await get_json(served, "/readyz") == {
        "status": "ok",
        "open_streams": 0,
        "store": {
            "kind": "memory",
            "shared": True,
            "breaker": "closed",
            "detail": served.app.store.status().detail,
        },
    }


async def test_readyz_says_degraded_without_the_shared_store(serve: Serve) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    served = await serve(store=f"redis://user:secret@127.0.0.1:{port}/0")

    status, text = await get(served, "/readyz")

    assert status == 200
    assert '"status": "degraded"' in text
    assert "secret" not in text


async def test_readyz_says_draining(serve: Serve) -> None:
    served = await serve(drain_delay="60")
    served.app.stop()
    await served.app.drained.wait()

    status, text = await get(served, "/readyz")

    assert status == 503
    assert '"status": "draining"' in text
    assert (await get(served, "/healthz"))[0] == 200


async def test_pools(serve: Serve) -> None:
    served = await serve()
    assert await get_json(served, "/pools") == {}
    first, second = await request(served), await request(served)

    pools = await get_json(served, "/pools")

    assert list(pools) == ["llm"]
    pool = pools["llm"]
    assert sorted(pool["replicas"]) == ["10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80"]
    in_flight = sorted(state["in_flight"] for state in pool["replicas"].values())
    assert in_flight == [0, 0, 2]
    assert any(state["pending_tokens"] > 1000 for state in pool["replicas"].values())
    assert pool["decisions"] == 2
    assert pool["reasons"] == {"cold": 1, "matched": 1}
    assert pool["outcomes"] == {"first": 2}
    assert pool["source"] == "static"
    assert pool["settings"]["strategy"] == "kv_aware"
    assert pool["hits"]["prompt_tokens"] == 2 * (pool["hits"]["prompt_tokens"] // 2)
    assert 0.4 < pool["hits"]["rate"] < 0.5

    await end(first)
    await end(second)
    await quiet(served)
    replicas = (await get_json(served, "/pools"))["llm"]["replicas"]
    assert {(state["in_flight"], state["pending_tokens"]) for state in replicas.values()} == {
        (0, 0)
    }


async def test_metrics(serve: Serve) -> None:
    served = await serve()
    call = await request(served)

    found = await samples(served)

    assert found["prefix_extproc_open_streams", ()] == 1
    assert found["prefix_extproc_streams_total", ()] == 1
    assert found["prefix_extproc_decisions_total", ("llm", "cold")] == 1
    assert found["prefix_extproc_responses_total", ("first", "llm")] == 1
    assert found["prefix_extproc_decision_seconds_count", ()] == 1
    assert found["prefix_extproc_store_seconds_count", ()] == 1
    assert found["prefix_extproc_prompt_tokens_total", ("llm",)] > 1000
    assert found["prefix_extproc_store_shared", ("memory",)] == 1
    in_flight = [
        value for (name, _), value in found.items() if name == "prefix_extproc_replica_in_flight"
    ]
    assert sorted(in_flight) == [0, 0, 1]
    await end(call)


async def test_the_pool_label_is_bounded(serve: Serve) -> None:
    served = await serve()
    for number in range(120):
        call = served.open()
        await exchange(call, request_headers(cluster=f"c{number}"), request_body(chat("hello")))
        await end(call)

    pools = await get_json(served, "/pools")
    found = await samples(served)

    assert len(pools) == 101
    assert pools["other"]["decisions"] == 20
    assert found["prefix_extproc_decisions_total", ("other", "cold")] == 20
