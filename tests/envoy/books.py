"""What the routers and the store itself say of open requests and pending tokens."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any
from urllib.parse import unquote

from redis.asyncio import Redis

from extproc.affinity.directory import _HEADER, _RECORD
from extproc.lab.stack import LocalStack, Router
from tests.envoy.conftest import get_json

Load = dict[str, tuple[int, int]]
"""``pool/replica`` to requests in flight and pending tokens, of those that have any."""


def in_flight(load: Load) -> dict[str, int]:
    """Replica to requests in flight, for loads of one pool."""
    return {name.partition("/")[2]: count for name, (count, _) in load.items() if count}


async def told(router: Router) -> Load:
    """By a router's ``/pools``."""
    pools: dict[str, Any] = await get_json(f"{router.admin}/pools")
    return {
        f"{pool}/{address}": (state["in_flight"], state["pending_tokens"])
        for pool, counts in pools.items()
        for address, state in counts["replicas"].items()
        if state["in_flight"] or state["pending_tokens"]
    }


async def written(stack: LocalStack) -> tuple[Load, int]:
    """By the keys of the store: the load, members or not, and how many reservations are open."""
    load: Load = {}
    client: Any = Redis.from_url(stack.store_url)
    try:
        open_keys = await client.keys("prefix-extproc:*:open:*")
        for key in await client.keys("prefix-extproc:*:state"):
            pool = unquote(key.decode().partition("{")[2].partition("}")[0])
            members = await client.hgetall(key.removesuffix(b"state") + b"members")
            names = {int(index): name.decode() for name, index in members.items()}
            records = (await client.get(key))[_HEADER:]
            records += bytes(-len(records) % _RECORD.size)
            for index, (count, tokens, *_) in enumerate(_RECORD.iter_unpack(records)):
                pending = int.from_bytes(tokens, "little")
                if count or pending:
                    load[f"{pool}/{names.get(index, index)}"] = (count, pending)
        return load, sum([await client.hlen(key) for key in open_keys])
    finally:
        await client.aclose()


async def balanced(stack: LocalStack, routers: Iterable[Router] = ()) -> bool:
    """Whether nothing is in flight or pending, by every router and by the store."""
    if any([await told(router) for router in routers or stack.routers]):
        return False
    return stack.valkey is None or await written(stack) == ({}, 0)


async def until(condition: Callable[[], Awaitable[bool]], seconds: float) -> None:
    """Wait for a condition.

    Raises:
        TimeoutError: It did not hold within the time.
    """
    async with asyncio.timeout(seconds):
        while not await condition():
            await asyncio.sleep(0.05)


async def readiness(admin: str) -> str:
    """The status on ``/readyz`` of a router's admin interface."""
    status: str = (await get_json(f"{admin}/readyz"))["status"]
    return status


def left(deadline: float) -> float:
    """Seconds until a monotonic time."""
    return deadline - time.monotonic()
