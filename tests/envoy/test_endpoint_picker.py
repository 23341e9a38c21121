"""Scenarios that any endpoint picker has to pass, end to end."""

import asyncio
import json
import uuid

import pytest

from extproc.lab.stack import LocalStack
from extproc.processing import BodyMode
from tests.envoy.clients import JSON, Http1, digest, http1
from tests.envoy.conftest import name_of, pool, received, settled

pytestmark = pytest.mark.asyncio(loop_scope="session")


def messages(text: str, **fields: object) -> bytes:
    """A body that the chat and the messages API both take."""
    message = {"role": "user", "content": text}
    return json.dumps({"model": "m", "max_tokens": 1, "messages": [message]} | fields).encode()


async def test_a_body_cut_mid_word_is_routed_once(stack: LocalStack, mode: BodyMode) -> None:
    name = name_of(mode)
    body = messages(uuid.uuid4().hex * 20)
    before = (await pool(stack, name)).get("decisions", 0)
    answer = await http1(stack.port(name), [body[:100], 0.1, body[100:]])
    assert (answer.status, answer.received) == (200, digest(body))
    assert (await pool(stack, name))["decisions"] == before + 1


async def test_blanks_and_gaps_in_a_list_of_replicas(stack: LocalStack) -> None:
    """Neither is in Envoy's cluster: it passes over both and serves all the same."""
    body = messages("hello")
    answer = await http1(stack.port("spaced"), [body], length=len(body))
    assert answer.status == 200
    found = await pool(stack, "spaced")
    assert found["settings"]["replicas"] == ["10.0.0.2:8080", "10.0.0.3:8080"]


async def test_a_false_content_length_is_harmless(stack: LocalStack, mode: BodyMode) -> None:
    """The client promises more than it sends, and leaves."""
    name = name_of(mode)
    body = messages(uuid.uuid4().hex)
    async with Http1(stack.port(name)) as client:
        await client.head("POST", "/v1/chat/completions", [JSON, ("content-length", "99999")])
        await client.send(body)
        await asyncio.sleep(0.2)
        client.leave()
    await settled(stack, name)
    answer = await http1(stack.port(name), [body], length=len(body))
    assert (answer.status, answer.received) == (200, digest(body))


async def test_repeated_request_headers_are_kept(stack: LocalStack, mode: BodyMode) -> None:
    path = f"/echo/{uuid.uuid4().hex}"
    tags = [("x-tag", "one"), ("x-tag", "two"), ("x-tag", "one")]
    await http1(stack.port(name_of(mode)), [b"{}"], path=path, headers=[JSON, *tags], length=2)
    (entry,) = await received(stack, path)
    assert [value for name, value in entry["headers"] if name.lower() == "x-tag"] == [
        "one",
        "two",
        "one",
    ]


async def test_a_query_string_does_not_hide_the_api(stack: LocalStack, mode: BodyMode) -> None:
    name, topic = name_of(mode), uuid.uuid4().hex * 40
    port = stack.port(name)
    first = await http1(port, [messages(topic)], path="/v1/messages?beta=true")
    before = (await pool(stack, name))["reasons"].get("matched", 0)
    again = await http1(port, [messages(topic + "?", top_k=1)], path="/v1/messages")
    assert (first.status, again.status) == (200, 200)
    assert again.replica == first.replica
    assert (await pool(stack, name))["reasons"]["matched"] == before + 1


async def test_a_request_without_body_goes_to_the_least_busy_replica(
    stack: LocalStack, mode: BodyMode
) -> None:
    name = name_of(mode)
    await settled(stack, name)
    busy: set[str] = set()
    clients = [Http1(stack.port(name)) for _ in range(2)]
    for client in clients:
        await client.__aenter__()
        body = messages(uuid.uuid4().hex * 40, max_tokens=100_000, stream=True)
        length = ("content-length", str(len(body)))
        await client.head("POST", "/v1/chat/completions", [JSON, length])
        await client.send(body)
        head = await client.reader.readuntil(b"\r\n\r\n")
        busy.add(head.lower().partition(b"x-replica: ")[2].partition(b"\r\n")[0].decode())
    answer = await http1(stack.port(name), method="GET", path="/v1/models")
    for client in clients:
        client.leave()
    assert len(busy) == 2
    assert answer.status == 200
    assert answer.replica.lower() not in busy
    await settled(stack, name)


async def test_an_empty_pool_leaves_the_choice_to_envoy(stack: LocalStack) -> None:
    body = messages("hello")
    answer = await http1(stack.port("empty"), [body], length=len(body))
    assert (answer.status, answer.received) == (200, digest(body))
    found = await pool(stack, "empty")
    assert found["outcomes"]["envoy"] >= 1
    assert found["reasons"]["no_replicas"] + found["reasons"].get("observing", 0) >= 1


@pytest.mark.parametrize("size", [0, 62_000, 62_001, 125_000])
async def test_full_duplex_bodies_around_the_chunk_limit_arrive_whole(
    stack: LocalStack, size: int
) -> None:
    path = f"/echo/{uuid.uuid4().hex}"
    body = bytes(i % 251 for i in range(size))
    port = stack.port(name_of(BodyMode.FULL_DUPLEX_STREAMED))
    answer = await http1(port, [body], path=path)
    assert answer.status == 200
    (entry,) = await received(stack, path)
    assert (entry["size"], entry["sha256"]) == (size, digest(body))
