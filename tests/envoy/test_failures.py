"""What clients see when a router or a replica fails: nothing.

BUFFERED and BUFFERED_PARTIAL with a retry policy and STREAMED without one, on a real Envoy. For
BUFFERED_PARTIAL with retries Envoy has to collect the body first: otherwise it sends the first part
twice where a router dies while the body still comes in.
"""

import asyncio
import json
import uuid
from collections import Counter
from collections.abc import AsyncIterator

import aiohttp
import pytest
import pytest_asyncio

from extproc.lab.envoy_config import ListenerConfig
from extproc.lab.stack import LocalStack, ReplicaOptions
from extproc.processing import DESTINATION, BodyMode
from tests.envoy.clients import JSON, Answer, Http1, digest, http1
from tests.envoy.conftest import EXACT_WITH_RETRIES, get_json, pool
from tests.envoy.versions import envoy_version

pytestmark = pytest.mark.asyncio(loop_scope="module")

FAIL_OPEN = [BodyMode.BUFFERED, BodyMode.BUFFERED_PARTIAL, BodyMode.STREAMED]
SIZES = [1_000, 200_000, 2_000_000]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def failing() -> AsyncIterator[LocalStack]:
    listeners = [
        ListenerConfig(
            str(mode),
            body_mode=mode,
            metadata={"x-prefix-pool": str(mode)},
            retry=mode in EXACT_WITH_RETRIES,
            whole_body=mode is BodyMode.BUFFERED_PARTIAL,
            message_timeout_s=0.3,
        )
        for mode in FAIL_OPEN
    ]
    options = ReplicaOptions(speed=float("inf"))
    async with LocalStack(listeners, replicas=4, replica_options=options) as started:
        yield started


@pytest.fixture(params=FAIL_OPEN, ids=str)
def mode(request: pytest.FixtureRequest) -> BodyMode:
    found: BodyMode = request.param
    return found


def chat(size: int) -> bytes:
    message = {"role": "user", "content": f"{uuid.uuid4().hex} " + "x" * size}
    return json.dumps({"model": "m", "max_tokens": 1, "messages": [message]}).encode()


async def post(stack: LocalStack, mode: BodyMode, body: bytes, *headers: tuple[str, str]) -> Answer:
    port = stack.port(str(mode))
    return await http1(port, [body], headers=[JSON, *headers], length=len(body))


async def works(stack: LocalStack, mode: BodyMode) -> None:
    """Wait until Envoy sees the router again: it decides."""
    async with asyncio.timeout(20):
        while True:
            before = (await pool(stack, str(mode))).get("decisions", 0)
            await post(stack, mode, chat(10))
            if (await pool(stack, str(mode))).get("decisions", 0) > before:
                return
            await asyncio.sleep(0.1)


async def test_a_dead_router_costs_nothing(failing: LocalStack, mode: BodyMode) -> None:
    await works(failing, mode)
    await failing.routers[0].kill()
    bodies = [chat(size) for size in SIZES for _ in range(5)]
    answers = [await post(failing, mode, body) for body in bodies]
    await failing.routers[0].start()
    assert [answer.status for answer in answers] == [200] * len(bodies)
    assert [answer.received for answer in answers] == [digest(body) for body in bodies]


@pytest.mark.parametrize("size", SIZES)
async def test_a_router_killed_mid_body_costs_nothing(
    failing: LocalStack, mode: BodyMode, size: int
) -> None:
    await works(failing, mode)
    body = chat(size)
    async with asyncio.timeout(20), Http1(failing.port(str(mode))) as client:
        length = ("content-length", str(len(body)))
        await client.head("POST", "/v1/chat/completions", [JSON, length])
        await client.send(body[: size // 2])
        await asyncio.sleep(0.1)  # the router has what Envoy hands over of it
        await failing.routers[0].kill()
        await client.send(body[size // 2 :])
        answer = await client.answer()
    await failing.routers[0].start()
    assert (answer.status, answer.received) == (200, digest(body))


async def test_a_silent_router_costs_its_timeout(failing: LocalStack, mode: BodyMode) -> None:
    if mode is BodyMode.BUFFERED and envoy_version() < (1, 37):
        pytest.skip("Envoy 1.36 refuses large bodies: 413")
    await works(failing, mode)
    failing.routers[0].pause()
    try:
        bodies = [chat(size) for size in SIZES]
        answers = await asyncio.gather(*(post(failing, mode, body) for body in bodies))
    finally:
        failing.routers[0].resume()
    assert [answer.status for answer in answers] == [200] * len(bodies)
    assert [answer.received for answer in answers] == [digest(body) for body in bodies]


@pytest.mark.parametrize("alive", [True, False], ids=["router alive", "router dead"])
async def test_a_client_cannot_choose_its_replica(
    failing: LocalStack, mode: BodyMode, alive: bool
) -> None:
    await works(failing, mode)
    if not alive:
        await failing.routers[0].kill()
    wishes = {uuid.uuid4().hex: wish for wish in failing.replicas for _ in range(10)}
    answers = [
        await post(failing, mode, chat(10), (DESTINATION, wish), ("x-mark", mark))
        for mark, wish in wishes.items()
    ]
    if not alive:
        await failing.routers[0].start()
    assert {answer.status for answer in answers} == {200}
    # A killed router's requests still weigh on their replicas for a while, so that all of these may
    # go to one: what counts is that they do not follow the wish.
    assert [answer.replica for answer in answers] != list(wishes.values())
    for replica in failing.replicas:
        for entry in await get_json(f"http://{replica}/lab/requests"):
            headers = dict(entry["headers"])
            if headers.get("x-mark") not in wishes:
                continue
            assert headers.get(DESTINATION, "").startswith(replica if alive else "")
            assert alive or DESTINATION not in headers


async def test_one_dead_replica_of_four_fails_no_request(
    failing: LocalStack,
) -> None:
    """2,000 requests of six clients: the ranked list leads each retry to a live replica."""
    mode = BodyMode.BUFFERED_PARTIAL
    await works(failing, mode)
    await failing.replica_processes[1].kill()
    statuses: Counter[int] = Counter()
    url = f"{failing.url(str(mode))}/v1/chat/completions"
    bodies = iter([chat(100) for _ in range(2_000)])

    async def client(session: aiohttp.ClientSession) -> None:
        for body in bodies:
            async with session.post(url, data=body, headers=dict([JSON])) as reply:
                await reply.read()
                statuses[reply.status] += 1

    async with aiohttp.ClientSession() as session:
        await asyncio.gather(*(client(session) for _ in range(6)))
    await failing.replica_processes[1].start()
    assert statuses == {200: 2_000}
    assert (await pool(failing, str(mode)))["outcomes"]["retried"] > 0
