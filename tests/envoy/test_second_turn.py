"""Two routers decide like one: a conversation's second turn finds the replica of its first.

The first turn goes through one router, the second through the other, 20 ms after the first response
was read to its end.
"""

import asyncio
import random
from collections.abc import AsyncIterator

import aiohttp
import pytest
import pytest_asyncio

from extproc.lab.stack import LocalStack, ReplicaOptions
from extproc.routing import Strategy
from tests.envoy.conftest import get_json
from tests.envoy.conversation import converse, through

pytestmark = pytest.mark.asyncio(loop_scope="module")

CONVERSATIONS = 180
AT_ONCE = 4
"""Few enough that load never outweighs a first turn of 3,000 bytes: three requests more than
elsewhere cost 3 x 256 tokens, its checkpoint of at least 2,600 bytes saves 2.5 x 650."""

STRATEGIES = [Strategy.KV_AWARE, Strategy.PREFIX_AWARE]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pair() -> AsyncIterator[LocalStack]:
    async with LocalStack(
        [through(router, strategy) for strategy in STRATEGIES for router in range(2)],
        routers=2,
        replicas=7,
        replica_options=ReplicaOptions(speed=float("inf"), per_process=7),
        router_arguments=["--store-deadline-ms", "900"],
    ) as started:
        yield started


@pytest.mark.parametrize("strategy", STRATEGIES, ids=str)
async def test_the_second_turn_through_another_router(pair: LocalStack, strategy: Strategy) -> None:
    numbers = iter(range(CONVERSATIONS))
    turns: list[tuple[str, str]] = []

    async def client(session: aiohttp.ClientSession) -> None:
        for number in numbers:
            routers = [number % 2, 1 - number % 2]
            urls = [pair.url(f"{strategy}-{router}") for router in routers]
            turns.append(await converse(session, urls, random.Random(number)))

    async with aiohttp.ClientSession() as session, asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(client(session))

    assert len(turns) == CONVERSATIONS
    assert [turn for turn in turns if turn[0] != turn[1]] == []
    assert len({first for first, _ in turns}) == 7
    for router in pair.routers:
        counts = (await get_json(f"{router.admin}/pools"))[strategy.value]
        assert counts["unshared_decisions"] == 0
        assert counts["reasons"] == {"cold": CONVERSATIONS / 2, "matched": CONVERSATIONS / 2}
