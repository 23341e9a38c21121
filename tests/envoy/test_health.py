"""Replicas that fail, hang, die and come back, behind one Envoy and two routers."""

import asyncio
import json
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable

import aiohttp
import pytest
import pytest_asyncio

from extproc.lab.envoy_config import ListenerConfig
from extproc.lab.stack import LocalStack
from tests.envoy.conftest import get_json
from tests.moody import Mood, MoodyReplica

pytestmark = pytest.mark.asyncio(loop_scope="module")

LIMIT_S = 60.0
"""For a machine that is busy with other things."""


POOLS: dict[str, dict[str, str]] = {
    "default": {},
    "long": {"x-prefix-eject-time": "1h"},
    "checked": {
        "x-prefix-eject-time": "1h",
        "x-prefix-health-path": "/health",
        "x-prefix-health-interval": "1s",
    },
    "hang": {"x-prefix-hang-after": "2s", "x-prefix-eject-time": "1h"},
    "flapping": {"x-prefix-eject-time": "1s", "x-prefix-slow-start": "1s"},
}


class World:
    def __init__(self, stack: LocalStack, replicas: list[MoodyReplica]) -> None:
        self.stack = stack
        self.replicas = replicas

    async def send(self, pool: str, count: int, *, clients: int = 6) -> Counter[int]:
        """Send requests of prompts that share nothing, from several clients."""
        statuses: Counter[int] = Counter()
        url = f"{self.stack.url(pool)}/v1/chat/completions"
        numbers = iter(range(count))

        async def client(session: aiohttp.ClientSession) -> None:
            for _ in numbers:
                message = {"role": "user", "content": uuid.uuid4().hex + " word" * 100}
                body = json.dumps({"model": "m", "messages": [message]})
                headers = {"content-type": "application/json", "x-pool": pool}
                async with session.post(url, data=body, headers=headers) as reply:
                    await reply.read()
                    statuses[reply.status] += 1

        async with aiohttp.ClientSession() as session:
            await asyncio.gather(*(client(session) for _ in range(clients)))
        return statuses

    async def states(self, pool: str, fact: str = "health") -> list[dict[str, object]]:
        """A fact of each replica, as each router tells it."""
        pages = [(await get_json(f"{each.admin}/pools"))[pool] for each in self.stack.routers]
        return [
            {address: facts.get(fact) for address, facts in page["replicas"].items()}
            for page in pages
        ]

    async def hear(self, pool: str, replica: MoodyReplica, *states: str) -> None:
        """Wait until all routers say so of a replica's health."""

        async def heard() -> bool:
            found = await self.states(pool)
            return all(each.get(replica.address) in states for each in found)

        await until(heard)

    def hits(self, pool: str) -> list[int]:
        return [replica.hits[pool] for replica in self.replicas]


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(LIMIT_S):
        while not await condition():
            await asyncio.sleep(0.1)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running() -> AsyncIterator[World]:
    replicas = [MoodyReplica() for _ in range(4)]
    for replica in replicas:
        await replica.start()
    addresses = [replica.address for replica in replicas]
    members = {"x-prefix-replicas": ",".join(addresses)}
    listeners = [
        ListenerConfig(name, metadata={"x-prefix-pool": name, **members, **more})
        for name, more in POOLS.items()
    ]
    async with LocalStack(listeners, routers=2, addresses=addresses) as stack:
        yield World(stack, replicas)
    for replica in replicas:
        await replica.kill()


@pytest_asyncio.fixture(loop_scope="module")
async def world(running: World) -> AsyncIterator[World]:
    yield running
    for replica in running.replicas:
        replica.mood = Mood.WELL


async def test_fast_errors_attract_nothing(world: World) -> None:
    bad = world.replicas[1]
    bad.mood = Mood.ERRORS
    statuses = await world.send("default", 2_000)
    assert statuses[200] + statuses[500] == 2_000
    assert 0 < bad.hits["default"] == statuses[500] < 20
    assert all(hits > 200 for hits in world.hits("default") if hits != bad.hits["default"])


async def test_one_routers_finding_protects_all(world: World) -> None:
    bad = world.replicas[0]
    bad.mood = Mood.ERRORS
    await world.send("long", 10)

    async def all_know() -> bool:
        await world.send("long", 10, clients=1)
        return all(each[bad.address] == "ejected" for each in await world.states("long"))

    await until(all_know)
    before = bad.hits["long"]
    assert before <= 6, "three for each router, or fewer where another knew before"
    assert await world.send("long", 300) == {200: 300}
    assert bad.hits["long"] == before
    faults = await world.states("long", "fault")
    assert [each[bad.address] for each in faults] == ["error", "error"]


async def test_with_all_replicas_bad_requests_still_go_somewhere(world: World) -> None:
    for replica in world.replicas:
        replica.mood = Mood.ERRORS
    for _ in range(20):
        assert await world.send("long", 20) == {500: 20}, "the replicas' answers, not Envoy's"
    states = await world.states("long")
    assert [Counter(each.values()) for each in states] == [{"ejected": 2, "needed": 2}] * 2
    before = world.hits("long")
    assert await world.send("long", 40) == {500: 40}
    assert sum(world.hits("long")) - sum(before) == 40


async def test_a_dead_replica_costs_no_request_and_gets_none_until_it_is_back(
    world: World,
) -> None:
    dead = world.replicas[2]
    assert await world.send("checked", 100) == {200: 100}
    assert all(world.hits("checked"))
    sending = asyncio.create_task(world.send("checked", 400))
    await dead.kill()
    assert await sending == {200: 400}
    await world.hear("checked", dead, "ejected")

    async def retried() -> int:
        pages = [await get_json(f"{each.admin}/pools") for each in world.stack.routers]
        return sum(page["checked"]["outcomes"].get("retried", 0) for page in pages)

    before = await retried()
    assert await world.send("checked", 200) == {200: 200}
    assert await retried() == before, "nothing was sent there"
    await dead.start()
    await world.hear("checked", dead, "warming", "healthy")
    before = dead.hits["checked"]

    async def serves() -> bool:
        assert await world.send("checked", 20) == {200: 20}
        return dead.hits["checked"] > before

    await until(serves)


async def test_a_replica_that_hangs_gets_nothing_more(world: World) -> None:
    for router in world.stack.routers:  # both know the pool
        while "hang" not in await get_json(f"{router.admin}/pools"):
            await world.send("hang", 1)
    silent = world.replicas[3]
    silent.mood = Mood.SILENT
    async with aiohttp.ClientSession() as session:
        stuck = []
        url = f"{world.stack.url('hang')}/v1/chat/completions"

        async def one() -> None:
            message = {"role": "user", "content": uuid.uuid4().hex}
            headers = {"x-pool": "hang"}
            async with session.post(url, json={"messages": [message]}, headers=headers):
                pass

        async def ejected() -> bool:
            stuck.append(asyncio.create_task(one()))
            states = await world.states("hang")
            return all(each.get(silent.address) == "ejected" for each in states)

        await until(ejected)
        before = silent.hits["hang"]
        assert await world.send("hang", 100) == {200: 100}
        assert silent.hits["hang"] == before
        for task in stuck:
            task.cancel()
        await asyncio.gather(*stuck, return_exceptions=True)


async def test_a_flapping_replica_leaves_exact_counters(world: World) -> None:
    flapping = world.replicas[0]
    total: Counter[int] = Counter()
    for _ in range(10):
        sending = asyncio.create_task(world.send("flapping", 60))
        await asyncio.sleep(0.05)
        await flapping.kill()
        await asyncio.sleep(0.05)
        await flapping.start()
        total += await sending
    assert total == {200: 600}

    async def settled() -> bool:
        found = await world.states("flapping", "in_flight")
        found += await world.states("flapping", "pending_tokens")
        return not any(number for each in found for number in each.values())

    await until(settled)
    assert len((await world.states("flapping"))[0]) == 4
