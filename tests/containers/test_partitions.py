"""A chat stays at home over all routers; parts that are cut off or paused cost no request."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from tests.containers.network import REPLICAS, ContainerStack
from tests.envoy.books import until
from tests.faults.conftest import Drills
from tests.faults.drills import LIMIT_S

pytestmark = [
    pytest.mark.containers,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(300),
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stack(image: str) -> AsyncIterator[ContainerStack]:
    with ContainerStack(image) as started:
        async with aiohttp.ClientSession() as http:

            async def serves() -> bool:
                try:
                    await ask(http, started, [message("user", "hello")])
                except aiohttp.ClientError:
                    return False
                return await started.serves()

            await until(serves, LIMIT_S)
        yield started


def message(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


async def ask(
    http: aiohttp.ClientSession, stack: ContainerStack, messages: list[dict[str, str]]
) -> tuple[str, str]:
    """Who answered, and what."""
    body = {"model": "m", "max_tokens": 8, "messages": messages}
    url = f"{stack.entrance}/v1/chat/completions"
    async with http.post(url, json=body, raise_for_status=True) as reply:
        answer: Any = json.loads(await reply.read())
        return reply.headers["x-replica"], answer["choices"][0]["message"]["content"]


async def test_the_second_turn_goes_home_by_whatever_router(stack: ContainerStack) -> None:
    before = await stack.decisions()
    homes, firsts, seconds = set(), [], []
    async with aiohttp.ClientSession() as http:
        for number in range(12):
            chat = [message("user", f"Chat {number}. " + f"{number} is a number. " * 300)]
            home, answer = await ask(http, stack, chat)
            firsts.append(home)
            chat += [message("assistant", answer), message("user", "And the next one?")]
            seconds.append((await ask(http, stack, chat))[0])
            homes.add(home)

    assert seconds == firsts
    assert len(homes) == REPLICAS
    made = [after - sum_ for after, sum_ in zip(await stack.decisions(), before, strict=True)]
    assert min(made) > 0  # by every router


@pytest.mark.parametrize("fault", ["is cut off", "is paused"])
@pytest.mark.parametrize("part", ["a router", "the store", "a replica"])
async def test_no_request_fails(
    stack: ContainerStack, drill: Drills, part: str, fault: str
) -> None:
    victim = {
        "a router": stack.routers[0],
        "the store": stack.valkey,
        "a replica": stack.replicas[0],
    }[part]
    breaks, mends = {
        "is cut off": (lambda: stack.cut(victim), lambda: stack.join(victim)),
        "is paused": (victim.pause, victim.unpause),
    }[fault]

    async with drill(stack, f"{part} {fault}") as it:
        await asyncio.to_thread(breaks)
        await it.passes()
        await asyncio.to_thread(mends)
        await it.mended()
        await it.whole(stack.serves)


async def test_a_router_that_is_stopped_ends_what_it_has(
    stack: ContainerStack, drill: Drills
) -> None:
    victim = stack.routers[0]
    async with drill(stack, "a router is stopped, later started") as it:
        await asyncio.to_thread(victim.stop, timeout=40)
        victim.reload()
        assert victim.attrs["State"]["ExitCode"] == 0
        await it.passes()
        await asyncio.to_thread(victim.start)
        await it.mended()
        await it.whole(stack.serves)
