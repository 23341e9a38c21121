import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer

from extproc.lab.counters import parse
from extproc.lab.replica.http import Replica, ReplicaSettings

CHAT = {"messages": [{"role": "user", "content": "x" * 400}], "max_tokens": 4}


@asynccontextmanager
async def serving(**settings: Any) -> AsyncIterator[tuple[Replica, TestClient[Any, Any]]]:
    replica = Replica(ReplicaSettings(name="r1", **({"speed": float("inf")} | settings)))
    async with TestClient(TestServer(replica.application)) as client:
        yield replica, client


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.01)


async def test_a_chat_in_one_piece() -> None:
    async with serving() as (_, client):
        for cached in (0, 96):
            response = await client.post("/v1/chat/completions", json=CHAT)
            answer = await response.json()
            assert answer["object"] == "chat.completion"
            assert answer["choices"][0]["message"]["content"] == " the sea was red"
            assert answer["usage"] == {
                "prompt_tokens": 105,
                "completion_tokens": 4,
                "total_tokens": 109,
                "prompt_tokens_details": {"cached_tokens": cached},
            }
            assert response.headers["x-replica"] == "r1"


async def test_a_streamed_chat() -> None:
    async with serving() as (_, client):
        body = CHAT | {"stream": True, "stream_options": {"include_usage": True}}
        response = await client.post("/v1/chat/completions", json=body)
        assert response.content_type == "text/event-stream"
        *events, done = (await response.text()).strip().split("\n\n")
        chunks = [json.loads(event.removeprefix("data: ")) for event in events]
        assert done == "data: [DONE]"
        texts = [chunk["choices"][0]["delta"]["content"] for chunk in chunks[:-1]]
        assert texts == [" the", " sea", " was", " red"]
        assert chunks[0]["choices"][0]["delta"]["role"] == "assistant"
        assert [chunk["choices"][0]["finish_reason"] for chunk in chunks[:-1]] == [
            *(None, None, None),
            "length",
        ]
        assert chunks[-1]["usage"]["completion_tokens"] == 4


async def test_a_stream_sends_its_head_before_prefill() -> None:
    async with serving(speed=1e-6) as (replica, client):
        response = await client.post("/v1/chat/completions", json=CHAT | {"stream": True})
        assert response.status == 200
        assert replica.engine.running + replica.engine.waiting == 1
        response.close()


async def test_completions_of_several_prompts() -> None:
    async with serving() as (_, client):
        response = await client.post(
            "/v1/completions", json={"prompt": ["a", "b"], "max_tokens": 2, "stream": True}
        )
        events = (await response.text()).strip().split("\n\n")[:-1]
        choices = [json.loads(event.removeprefix("data: "))["choices"][0] for event in events]
        for index in (0, 1):
            texts = [choice["text"] for choice in choices if choice["index"] == index]
            assert texts == [" the", " sea"]


async def test_a_client_that_leaves_aborts_its_sequence() -> None:
    async with serving(speed=1e-6) as (replica, client):
        response = await client.post("/v1/chat/completions", json=CHAT | {"stream": True})
        response.close()
        await until(lambda: replica.engine.running + replica.engine.waiting == 0)
        assert replica.log.as_json()[0]["aborted"]
        assert replica.engine.cache.held_blocks == 0


async def test_the_log_has_the_exact_bytes() -> None:
    body = b'{"messages": [{"role":  "user", "content": "h\\u0069"}]}'
    async with serving() as (_, client):
        response = await client.post(
            "/v1/chat/completions?x=%20", data=body, headers={"x-mark": "7"}
        )
        assert response.headers["x-body-sha256"] == hashlib.sha256(body).hexdigest()
        entries = await (await client.get("/lab/requests")).json()
        assert len(entries) == 1
        assert entries[0]["path"] == "/v1/chat/completions?x=%20"
        assert entries[0]["sha256"] == hashlib.sha256(body).hexdigest()
        assert entries[0]["size"] == len(body)
        assert entries[0]["complete"]
        assert not entries[0]["aborted"]
        assert ["x-mark", "7"] in entries[0]["headers"]
        await client.delete("/lab/requests")
        assert await (await client.get("/lab/requests")).json() == []


async def test_an_upload_that_breaks_off_is_logged_as_incomplete() -> None:
    async with serving() as (replica, client):
        assert client.port is not None
        _, writer = await asyncio.open_connection("127.0.0.1", client.port)
        writer.write(b"POST /upload HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\nhalf")
        await writer.drain()
        await until(lambda: any(entry["size"] == 4 for entry in replica.log.as_json()))
        writer.close()
        await until(lambda: bool(replica.log.as_json()[0]["aborted"]))
        assert not replica.log.as_json()[0]["complete"]


async def test_other_paths_echo_what_arrived() -> None:
    async with serving() as (_, client):
        response = await client.put("/v1/embeddings?a=1", data=b"abc")
        answer = await response.json()
        assert answer["method"] == "PUT"
        assert answer["path"] == "/v1/embeddings?a=1"
        assert answer["sha256"] == hashlib.sha256(b"abc").hexdigest()
        assert answer["replica"] == "r1"


async def test_web_sockets_echo_frames() -> None:
    async with serving() as (_, client), client.ws_connect("/realtime") as socket:
        await socket.send_str("hello")
        assert await socket.receive_str() == "hello"
        await socket.send_bytes(b"\0")
        assert await socket.receive_bytes() == b"\0"


async def test_metrics_have_vllms_names() -> None:
    async with serving(cache_tokens=16_000) as (_, client):
        for _ in range(2):
            await client.post("/v1/chat/completions", json=CHAT)
        text = await (await client.get("/metrics")).text()
    counters = parse(text)
    assert (counters.queries, counters.hits) == (210, 96)
    assert (counters.requests, counters.open) == (2, 0)
    for line in (
        'vllm:prompt_tokens_total{engine="0",model_name="llama-3.1-70b"} 210.0',
        'vllm:generation_tokens_total{engine="0",model_name="llama-3.1-70b"} 8.0',
        'vllm:kv_cache_usage_perc{engine="0",model_name="llama-3.1-70b"} 0.0',
        'num_gpu_blocks="1000"',
        "process_start_time_seconds",
    ):
        assert line in text


async def test_the_cache_can_be_emptied() -> None:
    async with serving() as (_, client):
        await client.post("/v1/chat/completions", json=CHAT)
        await client.post("/reset_prefix_cache")
        response = await client.post("/v1/chat/completions", json=CHAT)
        usage = (await response.json())["usage"]
        assert usage["prompt_tokens_details"]["cached_tokens"] == 0


async def test_models_and_health() -> None:
    async with serving(model="tiny") as (_, client):
        models = await (await client.get("/v1/models")).json()
        assert [model["id"] for model in models["data"]] == ["tiny"]
        assert (await client.get("/health")).status == 200


async def test_bad_requests_are_told_apart() -> None:
    async with serving() as (_, client):
        response = await client.post("/v1/chat/completions", data=b'{"messages": [')
        assert response.status == 400
        assert "no JSON" in (await response.json())["error"]["message"]


@pytest.mark.parametrize(("truncate", "status", "tokens"), [(True, 200, 60), (False, 400, 0)])
async def test_long_prompts_are_cut_or_refused(truncate: bool, status: int, tokens: int) -> None:
    async with serving(max_model_len=64, truncate=truncate) as (_, client):
        response = await client.post("/v1/chat/completions", json=CHAT)
        answer = await response.json()
        assert response.status == status
        assert answer.get("usage", {}).get("prompt_tokens", 0) == tokens


async def test_a_large_body_is_hashed_as_it_streams() -> None:
    async def body() -> AsyncIterator[bytes]:
        yield b'{"messages": [{"role": "user", "content": "'
        for _ in range(40):
            yield b"x" * 1_000_000
        yield b'"}]}'

    digest = hashlib.sha256()
    async for part in body():
        digest.update(part)
    async with serving() as (_, client):
        response = await client.post("/v1/chat/completions", data=body())
        assert response.status == 200
        assert response.headers["x-body-sha256"] == digest.hexdigest()


def test_speed_must_be_positive() -> None:
    with pytest.raises(ValueError, match="speed"):
        Replica(ReplicaSettings(name="r1", speed=0))
