"""Envoy sends bytes twice where it may retry a body that it does not hold whole.

A replica then gets a broken prompt, and says so or not. Nothing in a router can prevent that, so
`check` names each such configuration. Where one of these tests fails, that Envoy has been mended.
"""

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

import pytest
import pytest_asyncio

from extproc.check.checking import check
from extproc.lab.envoy_config import ListenerConfig, bootstrap, to_json
from extproc.lab.stack import LocalStack, ReplicaOptions
from extproc.processing import BodyMode
from tests.envoy.clients import JSON, Answer, Http1, digest, http1, http2
from tests.envoy.test_bodies import chat
from tests.envoy.versions import envoy_version

pytestmark = pytest.mark.asyncio(loop_scope="module")

RULE = "retries-double-bytes"
PATH = "/v1/anything"
"""Answered by the replica whatever the body is."""

SIZE = 20_000
LIMIT_S = 30.0


@dataclass(frozen=True)
class Way:
    """One way of having a body inspected on a route with a retry policy."""

    mode: BodyMode
    whole: bool = False

    def __str__(self) -> str:
        return f"{self.mode}-whole" if self.whole else str(self.mode)

    @property
    def listener(self) -> ListenerConfig:
        return ListenerConfig(
            str(self),
            body_mode=self.mode,
            whole_body=self.whole,
            metadata={"x-prefix-pool": str(self)},
            message_timeout_s=5.0,
        )


DOUBLING = [
    Way(BodyMode.STREAMED),
    Way(BodyMode.FULL_DUPLEX_STREAMED),
    Way(BodyMode.BUFFERED_PARTIAL),
]
EXACT = [Way(BodyMode.BUFFERED), Way(BodyMode.BUFFERED_PARTIAL, whole=True)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def retrying() -> AsyncIterator[LocalStack]:
    listeners = [way.listener for way in (*DOUBLING, *EXACT)]
    options = ReplicaOptions(speed=float("inf"), per_process=2)
    async with LocalStack(listeners, replicas=2, replica_options=options) as started:
        yield started


async def send_with_trailers(stack: LocalStack, way: Way, body: bytes) -> Answer:
    return await http2(stack.port(str(way)), [body, 0.02], path=PATH, trailers=[("x-sum", "1")])


async def send_while_the_router_dies(stack: LocalStack, way: Way, body: bytes) -> Answer:
    """The router dies between the first half of a body and the second."""
    (router,) = stack.routers
    async with asyncio.timeout(LIMIT_S), Http1(stack.port(str(way))) as client:
        await client.head("POST", PATH, [JSON, ("content-length", str(len(body)))])
        await client.send(body[: len(body) // 2])
        # Envoy has to have handed it on; nothing tells when.
        await asyncio.sleep(0.5)
        await router.kill()
        await asyncio.sleep(0.5)
        await client.send(body[len(body) // 2 :])
        answer = await client.answer()
    await router.start()
    return answer


@pytest.mark.parametrize("way", DOUBLING, ids=str)
async def test_envoy_doubles_a_body_before_trailers(retrying: LocalStack, way: Way) -> None:
    body = chat(SIZE, uuid.uuid4().hex, "")
    answer = await send_with_trailers(retrying, way, body)
    assert (answer.status, answer.received) == (200, digest(body + body))


@pytest.mark.parametrize("way", DOUBLING, ids=str)
async def test_envoy_doubles_what_had_come_when_a_router_died(
    retrying: LocalStack, way: Way
) -> None:
    body = chat(SIZE, uuid.uuid4().hex, "")
    answer = await send_while_the_router_dies(retrying, way, body)
    if way.mode is BodyMode.FULL_DUPLEX_STREAMED:
        assert answer.status == 500  # the bytes that the router had taken are lost
        return
    assert (answer.status, answer.received) == (200, digest(body[: len(body) // 2] + body))


@pytest.mark.parametrize("send", [send_with_trailers, send_while_the_router_dies])
@pytest.mark.parametrize("way", EXACT, ids=str)
async def test_a_body_that_envoy_holds_whole_is_exact(
    retrying: LocalStack,
    send: Callable[[LocalStack, Way, bytes], Awaitable[Answer]],
    way: Way,
) -> None:
    body = chat(SIZE, uuid.uuid4().hex, "")
    answer = await send(retrying, way, body)
    assert (answer.status, answer.received) == (200, digest(body))


@pytest.mark.parametrize("way", [Way(BodyMode.BUFFERED_PARTIAL), *EXACT], ids=str)
async def test_a_body_over_the_buffer_limit(retrying: LocalStack, way: Way) -> None:
    """Nothing fails, and yet Envoy 1.36 gives the replica what it had buffered twice."""
    body = chat(4_000_000, uuid.uuid4().hex, "")
    length = len(body)
    answer = await http1(retrying.port(str(way)), [body], path=PATH, length=length)
    if way.whole or envoy_version() > (1, 36):
        assert (answer.status, answer.received) == (200, digest(body))
    elif way.mode is BodyMode.BUFFERED:
        assert answer.status == 413
    else:
        assert answer.received != digest(body)


@pytest.mark.parametrize("way", [*DOUBLING, *EXACT], ids=str)
async def test_check_names_what_doubles(way: Way) -> None:
    text = to_json(
        bootstrap(
            {10_000: way.listener},
            admin_port=9901,
            routers=["127.0.0.1:9002"],
            replicas=["127.0.0.1:8001"],
        )
    )
    found = {finding.rule for finding in check({"envoy.json": text}).findings}
    assert (RULE in found) == (way in DOUBLING)
