"""Whoever speaks to the router directly may send anything."""

import asyncio
import contextlib
import random
from typing import Any

import aiohttp
import grpc
import pytest
from envoy.service.ext_proc.v3 import external_processor_pb2 as pb

from tests.server.conftest import STATIC, Serve, Served
from tests.server.messages import (
    JSON,
    chat,
    destinations,
    request_body,
    request_headers,
    response_headers,
    response_trailers,
)
from tests.server.test_stream import end, exchange, in_flight, quiet

METHOD = "/envoy.service.ext_proc.v3.ExternalProcessor/Process"
TEXT = "Nobody may read this in a log. "
LONG = TEXT * 100


WHOLE = request_headers({**JSON, "x-text": LONG}).SerializeToString()
GARBAGE = {
    "noise": random.Random(1).randbytes(5_000),
    "text": TEXT.encode(),
    "cut": WHOLE[:-1],
    "a length beyond the end": b"\x12\xff\xff\xff\xff\x0f" + TEXT.encode(),
    "an unknown group": b"\xfb\x07" * 5_000,
    "not UTF-8 in a text": WHOLE.replace(b"x-text", b"x-\xff\xfext"),
}


async def raw(served: Served, data: bytes) -> grpc.StatusCode:
    """How a stream with one message of these bytes ends."""
    method: Any = served.channel.stream_stream(
        METHOD, request_serializer=None, response_deserializer=None
    )
    call = method(metadata=STATIC)
    with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
        await call.write(data)
        await call.done_writing()
        while await call.read() is not grpc.aio.EOF:
            pass
    code: grpc.StatusCode = await call.code()
    return code


async def works(served: Served) -> None:
    """Whether a request is routed, and leaves nothing behind."""
    call = served.open()
    assert destinations(await exchange(call, request_headers(), request_body(chat(LONG))))
    await end(call)
    await quiet(served)
    assert await in_flight(served) == 0
    assert served.app.router.budget.used == 0


@pytest.mark.parametrize("data", GARBAGE.values(), ids=GARBAGE)
async def test_what_is_no_message_ends_its_stream_alone(
    serve: Serve, data: bytes, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    served = await serve()

    assert await raw(served, data) is grpc.StatusCode.INVALID_ARGUMENT

    await works(served)
    assert served.app.router.stats.violations == {"message that is none": 1}
    assert not caplog.records
    assert TEXT[:20] not in "".join(capsys.readouterr())


NAMES = ("", "x", ":path", "content-length", "content-encoding", "upgrade", "x-tenant", "\r\nx: y")
VALUES = (
    *("", "a\r\nb: c", "\x00", "-1", "9" * 400, "gzip", "websocket", TEXT, "x" * 60_000),
    *("\U0010ffff" * 50, "{}", "[::1]:80", "10.0.0.9:80,10.0.0.8:80"),
)
CHOOSING = ("request_headers", "request_body")
HINTS: tuple[str | list[str] | None, ...] = (
    None,
    "",
    TEXT,
    "10.0.0.2:80",
    [],
    ["10.0.0.3:80", TEXT, ""],
    "," * 5_000,
)


def anything(chance: random.Random) -> Any:
    """A message out of all that there are, in no order."""
    fields = {chance.choice(NAMES): chance.choice(VALUES) for _ in range(3)}
    message = chance.choice(
        (
            lambda: request_headers(
                JSON | fields,
                mode=chance.randrange(9),
                end_of_stream=chance.random() < 0.2,
                subset=chance.choice(HINTS),
            ),
            lambda: request_body(
                chat(chance.choice(VALUES) + LONG)[: chance.randrange(5_000)],
                end_of_stream=chance.random() < 0.3,
            ),
            lambda: response_headers(
                chance.choice(VALUES),
                status=chance.randrange(-1, 9999),
                attempts=chance.randrange(9),
            ),
            response_trailers,
            pb.ProcessingRequest,
        )
    )()
    if chance.random() < 0.1:
        message.request_trailers.SetInParent()
    return message


async def test_messages_in_any_order(
    serve: Serve, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    served = await serve(inspect_memory="20000")
    members = {"10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80"}

    async def one(seed: int) -> None:
        chance = random.Random(seed)
        call = served.open((*STATIC, ("x-prefix-tenant-header", "x-tenant")))
        for _ in range(chance.randrange(1, 12)):
            message = anything(chance)
            for _ in range(chance.choice((1, 1, 1, 2, 30))):
                await call.write(message)
        if chance.random() < 0.3:
            call.cancel()
            return
        await call.done_writing()
        replies = [reply async for reply in call]
        chosen = [reply for reply in replies if reply.WhichOneof("response") in CHOOSING]
        assert {place for reply in chosen for place in destinations([reply])} <= members

    for start in range(0, 300, 50):
        await asyncio.gather(*map(one, range(start, start + 50)))

    await works(served)
    left = (await served.app.store.snapshot("default")).values()  # where no cluster was named
    assert not any(state.in_flight or state.pending_tokens for state in left)
    stats = served.app.router.stats
    assert stats.violations
    assert not stats.errors
    assert not caplog.records
    assert TEXT[:20] not in "".join(capsys.readouterr())


async def test_a_static_pool_of_a_thousand_replicas(serve: Serve) -> None:
    served = await serve()
    replicas = [f"[2001:db8::{number:x}]:8000" for number in range(1, 1001)]
    call = served.open((("x-prefix-replicas", ",".join(replicas)),))
    found = destinations(await exchange(call, request_headers(), request_body(chat(LONG))))
    await end(call)
    assert set(found) < set(replicas)


@pytest.mark.parametrize(
    "name", ["}:state", "*", "{}", "a b", "x" * 60_000, "%7D", "$(id)", "../.."]
)
async def test_pools_of_any_name(serve: Serve, name: str) -> None:
    served = await serve()
    call = served.open((*STATIC, ("x-prefix-pool", name)))
    assert destinations(await exchange(call, request_headers(), request_body(chat(LONG))))
    await end(call)
    await works(served)
    async with aiohttp.ClientSession() as http:
        for page in ("/pools", "/metrics", "/"):
            async with http.get(served.pages + page) as reply:
                assert reply.status == 200
