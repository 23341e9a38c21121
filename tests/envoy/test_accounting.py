"""Requests in flight and pending tokens are exact, whatever becomes of clients and servers.

Seen through every router's ``/pools`` and in the store itself.
"""

import asyncio
import itertools
import json
import random
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import aiohttp
import pytest
import pytest_asyncio

from extproc.lab.envoy_config import ListenerConfig
from extproc.lab.processes import PortPool
from extproc.lab.stack import LocalStack
from extproc.processing import BodyMode
from tests.envoy.books import balanced, in_flight, left, told, until, written
from tests.envoy.clients import JSON, Headers, Http1, http1
from tests.envoy.conftest import EXACT_WITH_RETRIES, MODES, get_json
from tests.envoy.scripted import DONE, HOLD, RESET, SCRIPT, ScriptedReplicas

pytestmark = pytest.mark.asyncio(loop_scope="module")

ROUTERS = range(2)
REQUESTS = 500
CLIENTS = 16
OPEN = 50
MULTIPART = ("content-type", "multipart/form-data; boundary=cut")

POOLS: dict[str, dict[str, str]] = {
    "static": {},
    "observed": {},
    "shadow": {"x-prefix-mode": "shadow"},
}


def listeners() -> list[ListenerConfig]:
    """The static pool in every body mode, the others in the recommended one; each by router."""
    kinds = [("static", mode) for mode in MODES]
    kinds += [("observed", BodyMode.BUFFERED_PARTIAL), ("shadow", BodyMode.BUFFERED_PARTIAL)]
    return [
        ListenerConfig(
            f"{pool}-{mode}-{router}",
            body_mode=mode,
            metadata={"x-prefix-pool": pool, **POOLS[pool]},
            static_replicas=pool != "observed",
            router=router,
            retry=mode in EXACT_WITH_RETRIES,
            message_timeout_s=5.0,
        )
        for pool, mode in kinds
        for router in ROUTERS
    ]


MAIN = [f"static-{BodyMode.BUFFERED_PARTIAL}-{router}" for router in ROUTERS]


@dataclass(frozen=True)
class Stage:
    stack: LocalStack
    replicas: ScriptedReplicas


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(request: pytest.FixtureRequest) -> AsyncIterator[Stage]:
    """Two routers on the store that the parameter names; four replicas, and one that refuses."""
    async with ScriptedReplicas(4) as replicas:
        refusing = f"127.0.0.1:{PortPool().take()}"
        async with LocalStack(
            listeners(),
            routers=len(ROUTERS),
            addresses=[*replicas.addresses, refusing],
            store=request.param,
            router_arguments=["--store-deadline-ms", "900"],
        ) as stack:
            yield Stage(stack, replicas)


any_store = pytest.mark.parametrize(
    "stage", [None, "memory://"], ids=["valkey", "memory"], indirect=True
)
shared_store = pytest.mark.parametrize("stage", [None], ids=["valkey"], indirect=True)


# Mixed requests


@dataclass(frozen=True)
class Case:
    """One request: what is sent, what the replica does, and where the client leaves."""

    method: str
    path: str
    headers: Headers
    body: bytes
    status: int
    leaves: str


def chat(chance: random.Random, *, stream: bool = False) -> bytes:
    """A prompt of 1 kB to 300 kB; some begin alike."""
    topic = f"topic {chance.randrange(10)} " * 100
    text = topic + chance.randbytes(int(1_000 * 300 ** chance.random()) // 2).hex()
    messages = [{"role": "user", "content": text}]
    return json.dumps({"model": "m", "stream": stream, "messages": messages}).encode()


def case(number: int) -> Case:
    chance = random.Random(number)
    leaves = ["before", "upload", "response"][number // 10 % 3] if number % 10 < 3 else ""
    kind = chance.choice(["whole", "stream", "get", "multipart", "400", "404", "500", "503", RESET])
    method, path, script, status = "POST", "/v1/chat/completions", "", 200
    headers, body = [JSON], b""
    match kind:
        case "get":
            method, path = "GET", "/v1/models"
        case "multipart":
            path, headers = "/v1/audio/transcriptions", [MULTIPART]
            body = b"--cut\r\n\r\n" + chance.randbytes(20_000) + b"\r\n--cut--\r\n"
        case "whole" | "stream":
            script, body = kind, chat(chance, stream=kind == "stream")
        case _:
            script, body = kind, chat(chance)
            status = 503 if kind == RESET else int(kind)
    if leaves == "response":
        script = HOLD
    if leaves == "upload" and not body:
        leaves = "before"
    script = {"whole": ""}.get(script, script)
    return Case(method, path, [*headers, (SCRIPT, script)], body, status, leaves)


async def send(port: int, case: Case) -> int:
    """Send a request as its case says; the status of a whole answer, else 0."""
    async with asyncio.timeout(30), Http1(port) as client:
        framing = [("content-length", str(len(case.body)))] if case.method == "POST" else []
        await client.head(case.method, case.path, [*case.headers, *framing])
        if case.leaves == "before":
            return 0
        if case.leaves == "upload":
            await client.send(case.body[: len(case.body) // 2])
            await asyncio.sleep(0.01)
            return 0
        await client.send(case.body)
        if case.leaves == "response":
            await client.reader.readuntil(b"\r\n\r\n")
            return 0
        return (await client.answer()).status


@any_store
async def test_mixed_requests_of_which_many_are_aborted(stage: Stage) -> None:
    stack = stage.stack
    cases = [case(number) for number in range(REQUESTS)]
    work = iter(zip(cases, itertools.cycle(listeners())))
    wrong: list[tuple[str, Headers, int]] = []

    async def client() -> None:
        for each, listener in work:
            status = await send(stack.port(listener.name), each)
            # Without a ranked list to retry along, a request may end at the replica that refuses.
            ranked = listener.retry and listener.name.startswith("static")
            right = {each.status} if ranked else {each.status, 503}
            if not each.leaves and status not in right:
                wrong.append((listener.name, each.headers, status))

    async with asyncio.TaskGroup() as group:
        for _ in range(CLIENTS):
            group.create_task(client())

    assert wrong == []
    assert sum(bool(each.leaves) for each in cases) == 0.3 * REQUESTS
    await until(lambda: balanced(stack), 10)
    for router in stack.routers:
        pools = await get_json(f"{router.admin}/pools")
        assert pools.keys() == POOLS.keys()
        assert sum(pool["decisions"] for pool in pools.values()) > 0.3 * REQUESTS
        assert sum(pool["unshared_decisions"] for pool in pools.values()) == 0
        assert pools["static"]["outcomes"]["retried"] > 0
    stage.replicas.let_go()


# Many open requests


async def ask(url: str, number: int) -> bytes:
    """A streamed answer that its replica holds until it lets go."""
    headers = dict([JSON, (SCRIPT, HOLD)])
    body = chat(random.Random(number), stream=True)
    timeout = aiohttp.ClientTimeout(total=60)
    async with (
        aiohttp.ClientSession(timeout=timeout) as session,
        session.post(f"{url}/v1/chat/completions", data=body, headers=headers) as reply,
    ):
        assert reply.status == 200
        return await reply.read()


@asynccontextmanager
async def many_open(
    stage: Stage, listeners: Sequence[str]
) -> AsyncIterator[list[asyncio.Task[bytes]]]:
    """``OPEN`` requests that replicas hold, evenly through the listeners; seen by every router."""
    for each in MAIN:  # every router knows the pool
        await http1(stage.stack.port(each), method="GET", path="/v1/models")
    urls = itertools.cycle(map(stage.stack.url, listeners))
    asking = [asyncio.create_task(ask(next(urls), number)) for number in range(OPEN)]

    async def all_open() -> bool:
        return sum(stage.replicas.held.values()) == OPEN and await exact(stage)

    try:
        await until(all_open, 20)
        yield asking
    finally:
        stage.replicas.let_go()
        for task in asking:
            task.cancel()
        await asyncio.wait(asking)


async def exact(stage: Stage) -> bool:
    """Whether each replica has as many requests in flight as it holds: by routers and store."""
    truth = +stage.replicas.held
    load, reservations = await written(stage.stack)
    seen = [in_flight(load), *[in_flight(await told(router)) for router in stage.stack.routers]]
    return reservations == truth.total() and all(each == truth for each in seen)


@shared_store
async def test_a_killed_routers_requests_are_taken_back(stage: Stage) -> None:
    """Within ten seconds, while its requests are still being answered."""
    first, second = stage.stack.routers
    async with asyncio.timeout(30), many_open(stage, MAIN[:1]) as asking:
        await first.kill()
        killed = time.monotonic()
        await until(lambda: balanced(stage.stack, [second]), left(killed + 10))
        assert stage.replicas.held.total() == OPEN, "no client and no replica noticed"
        stage.replicas.let_go()
        answers = await asyncio.gather(*asking)
    assert {answer.endswith(DONE) for answer in answers} == {True}
    await first.start()
    await until(lambda: balanced(stage.stack), 10)


@shared_store
async def test_an_emptied_store_is_told_what_is_open(stage: Stage) -> None:
    """Within five seconds; and nothing is left when the requests have ended."""
    assert stage.stack.valkey is not None
    async with asyncio.timeout(30), many_open(stage, MAIN) as asking:
        await stage.stack.valkey.kill()
        await stage.stack.valkey.start()
        await until(lambda: exact(stage), 5)
        stage.replicas.let_go()
        await asyncio.gather(*asking)
    await until(lambda: balanced(stage.stack), 10)
