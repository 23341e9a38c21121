"""A store that dies, freezes, is slow, full, emptied, not ours, or out of reach for some."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from redis.asyncio import Redis

from tests.faults.conftest import Drills
from tests.faults.stack import POOL, FaultStack

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(300)]


@pytest_asyncio.fixture(loop_scope="session")
async def client(stack: FaultStack) -> AsyncIterator[Any]:
    """Straight to the store, past the proxies."""
    made: Any = Redis(port=stack.store_port)
    yield made
    await made.aclose()


async def test_the_store_is_killed(stack: FaultStack, drill: Drills) -> None:
    async with drill(stack, "the store is killed, later started empty") as it:
        await stack.store.kill()
        await it.passes()
        assert await stack.alone()
        await stack.store.start()
        await it.mended()
        await it.whole(stack.shared)


async def test_the_store_restarts(stack: FaultStack, drill: Drills) -> None:
    async with drill(stack, "the store is restarted, and is empty") as it:
        await stack.store.restart()
        await it.mended()
        await it.whole(stack.shared)


async def test_the_store_freezes(stack: FaultStack, drill: Drills) -> None:
    async with drill(stack, "the store: SIGSTOP, later SIGCONT") as it:
        stack.store.pause()
        await it.passes()
        await it.until(stack.alone)
        stack.store.resume()
        await it.mended()
        await it.whole(stack.shared)


async def test_the_store_is_slow(stack: FaultStack, drill: Drills) -> None:
    async with drill(stack, "every answer of the store takes 200 ms more") as it:
        for proxy in stack.proxies:
            proxy.delay_s = 0.2
        await it.passes()
        await it.until(stack.alone)
        for proxy in stack.proxies:
            proxy.delay_s = 0.0
        await it.mended()
        await it.whole(stack.shared)


async def test_one_router_is_cut_off_from_the_store(stack: FaultStack, drill: Drills) -> None:
    lonely, *others = stack.admins
    async with drill(stack, "no bytes between the store and one of three routers") as it:
        stack.proxies[0].parted = True
        await it.passes()
        await it.until(lambda: stack.alone([lonely]))
        assert await stack.shared(others)
        stack.proxies[0].parted = False
        await it.mended()
        await it.whole(stack.shared)


async def test_the_store_is_full(stack: FaultStack, drill: Drills, client: Any) -> None:
    async with drill(stack, "the store is full: `maxmemory` reached, `noeviction`") as it:
        await client.config_set("maxmemory-policy", "noeviction")
        await client.config_set("maxmemory", "1mb")
        await it.passes()
        await it.until(stack.alone)
        await client.config_set("maxmemory", "0")
        await it.mended()
        await it.whole(stack.shared)


async def test_scripts_are_flushed(stack: FaultStack, drill: Drills, client: Any) -> None:
    async with drill(stack, "the store forgets all scripts: `SCRIPT FLUSH`") as it:
        await client.script_flush()
        await it.passes()
        assert await stack.shared()
        await it.mended()
        await it.whole(stack.shared)


async def test_the_store_is_emptied(stack: FaultStack, drill: Drills, client: Any) -> None:
    async with drill(stack, "the store is emptied: `FLUSHALL`") as it:
        await client.flushall()
        await it.mended()
        await it.whole(stack.shared)


async def test_the_password_is_wrong(stack: FaultStack, drill: Drills, client: Any) -> None:
    async with drill(stack, "the store asks for a password that no router has") as it:
        await client.config_set("requirepass", "secret")
        await client.auth("secret")
        await client.client_kill_filter(_type="normal", skipme=True)
        await it.passes()
        await it.until(stack.alone)
        await client.config_set("requirepass", "")
        await it.mended()
        await it.whole(stack.shared)


async def test_a_key_of_ours_is_of_another_type(
    stack: FaultStack, drill: Drills, client: Any
) -> None:
    async with drill(stack, "a list stands where the state of the pool should be") as it:
        keys = [key async for key in client.scan_iter(f"prefix-extproc:*{POOL}*:state")]
        assert len(keys) == 1
        await client.delete(*keys)
        await client.rpush(keys[0], "not ours")
        await it.passes()
        await it.until(stack.alone)
        await client.delete(*keys)
        await it.mended()
        await it.whole(stack.shared)
