"""Clients that hold thousands of answers open, and clients that reset."""

import asyncio
import json

import aiohttp
import pytest

from tests.envoy.clients import http2_resets
from tests.faults.conftest import Drills
from tests.faults.drills import Load
from tests.faults.stack import POOL, FaultStack
from tests.moody import PIECE, PIECES, Mood

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(300)]

PER_RATE = 100
"""Held answers for each request per second: 5,000 at 50/s."""


HELD = {"content-type": "application/json", "x-mood": Mood.STALLED.name}


async def test_thousands_of_answers_are_held(stack: FaultStack, drill: Drills, load: Load) -> None:
    """All at once, each stalled in its middle; then all come to their end."""
    count = round(load.rate * PER_RATE)
    message = {"role": "user", "content": "Tell me a long story."}
    body = json.dumps({"model": "m", "stream": True, "messages": [message]}).encode()
    connector, timeout = aiohttp.TCPConnector(limit=0), aiohttp.ClientTimeout(total=None)
    gate = asyncio.Semaphore(20)

    async def begin(http: aiohttp.ClientSession) -> aiohttp.ClientResponse:
        async with gate:
            url = f"{stack.entrance}/v1/chat/completions"
            return await http.post(url, data=body, headers=HELD)

    async with (
        aiohttp.ClientSession(connector=connector, timeout=timeout) as http,
        drill(stack, f"{count:,} answers are held open at once") as it,
    ):
        held = await asyncio.gather(*(begin(http) for _ in range(count)))
        await it.passes()
        pages = await stack.pools()
        # Not all: Envoy routes by itself what a busy router answers too late.
        assert all(
            sum(state["in_flight"] for state in page["replicas"].values()) > count * 0.8
            for page in pages
        )
        for replica in stack.moody:
            replica.mood = Mood.WELL
        ends = await asyncio.gather(*(reply.read() for reply in held))
        assert {reply.status for reply in held} == {200}
        assert set(ends) == {PIECE * PIECES}
        await it.mended()
        await it.whole(stack.shared)


async def test_clients_reset_their_requests(stack: FaultStack, drill: Drills, load: Load) -> None:
    """Over HTTP/2: before, in the middle of and behind the body, many at the same time."""
    count = round(load.rate * load.seconds * 5)
    async with drill(stack, f"{count:,} HTTP/2 requests are reset by their clients") as it:
        sent = await http2_resets(stack.port(POOL), count)
        assert sent == count
        await it.mended()
        await it.whole(stack.shared)
