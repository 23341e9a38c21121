"""Replicas come and go, for every source, on the real Envoy and Valkey."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count

import aiohttp
import pytest
import pytest_asyncio

from tests.envoy.conftest import settled
from tests.envoy.scaling import LIMIT_S, ScalingStack, scaling

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(240)]

SOURCES = ["envoy-admin", "file", "dns", "dns+srv", "eds", "eds-delta"]
LONG = "All work and no play makes a long prompt. " * 60
MANY = 500
"""Prompts until which every replica has had some, by all that chance can do."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stack() -> AsyncIterator[ScalingStack]:
    async with scaling(SOURCES, replicas=4) as started:
        yield started


@pytest_asyncio.fixture(loop_scope="module")
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as opened:
        yield opened


class Client:
    """Asks through the listener of one source.

    Attributes:
        homes: Prompt to the replica that served it last.
        statuses: Of all responses.
    """

    def __init__(self, stack: ScalingStack, session: aiohttp.ClientSession, source: str) -> None:
        self.homes: dict[str, str] = {}
        self.statuses: Counter[int] = Counter()
        self._session = session
        self._url = stack.url(source) + "/v1/completions"

    async def ask(self, prompt: str) -> str:
        """The replica that answered."""
        body = {"model": "m", "max_tokens": 1, "prompt": prompt + LONG}
        async with self._session.post(self._url, json=body) as reply:
            await reply.read()
            self.statuses[reply.status] += 1
            return reply.headers.get("x-replica", "")

    async def spread(self, name: str, replicas: set[str], each: int) -> None:
        """Ask new prompts until every replica has had so many of them."""
        served: Counter[str] = Counter()
        for number in range(MANY):
            prompt = f"{name} {number} "
            self.homes[prompt] = await self.ask(prompt)
            served[self.homes[prompt]] += 1
            if all(served[replica] >= each for replica in replicas):
                return
        raise AssertionError(f"of {MANY} prompts, the replicas got {served}")

    async def moved(self) -> set[str]:
        """Ask all prompts again; those that another replica served than before."""
        before = dict(self.homes)
        for prompt in before:
            self.homes[prompt] = await self.ask(prompt)
        return {prompt for prompt, home in before.items() if self.homes[prompt] != home}

    def at(self, replica: str) -> set[str]:
        """The prompts that a replica served last."""
        return {prompt for prompt, home in self.homes.items() if home == replica}

    @asynccontextmanager
    async def busy(self) -> AsyncIterator[None]:
        """Ask without end, while the body of the statement runs."""
        ended = False

        async def work(number: int) -> None:
            for turn in count():
                if ended:
                    return
                await self.ask(f"busy {number} {turn % 7} ")

        async with asyncio.TaskGroup() as group:
            for number in range(2):
                group.create_task(work(number))
            yield
            ended = True


async def begin(stack: ScalingStack, client: Client, source: str) -> None:
    """Three replicas, known to Envoy and to the source."""
    stack.serve(stack.replicas[:3])
    await client.ask("first ")  # the source is followed from the first request on
    await stack.followed(source, stack.replicas[:3])


@pytest.mark.parametrize("source", SOURCES)
async def test_traffic_follows_and_only_the_removed_replicas_prompts_move(
    stack: ScalingStack, session: aiohttp.ClientSession, source: str
) -> None:
    gone, *stay, new = stack.replicas
    client = Client(stack, session, source)
    await begin(stack, client, source)
    await client.spread("before", {gone, *stay}, each=4)
    await settled(stack, source)
    assert await client.moved() == set()

    async with client.busy():
        stack.serve([gone, *stay, new])
        await stack.followed(source, [gone, *stay, new])
    await settled(stack, source)
    assert await client.moved() == set()
    await client.spread("after", {new}, each=2)
    await settled(stack, source)

    lost = client.at(gone)
    async with client.busy():
        stack.serve([*stay, new])
        await stack.followed(source, [*stay, new])
    await settled(stack, source)
    assert await client.moved() == lost
    assert set(client.homes.values()) == {*stay, new}
    await settled(stack, source)
    assert await client.moved() == set()

    assert set(client.statuses) == {200}
    assert (await stack.discovery(source))["source"] == source.removesuffix("-delta")


async def test_what_envoy_drains_is_not_chosen_and_keeps_its_prompts(
    stack: ScalingStack, session: aiohttp.ClientSession
) -> None:
    source = "envoy-admin"
    client = Client(stack, session, source)
    await begin(stack, client, source)
    draining, *others = stack.replicas[:3]
    await client.spread("drained", {draining, *others}, each=3)
    drained = client.at(draining)
    await settled(stack, source)

    stack.serve(stack.replicas[:3], draining=[draining])
    async with asyncio.timeout(LIMIT_S):
        while (await stack.healthy(source))[draining]:
            await asyncio.sleep(0.05)
    assert await client.moved() == drained
    assert set(client.homes.values()) == set(others)

    found = (await stack.discovery(source))["replicas"]
    assert found[others[0]] == {"zone": "here", "weight": 1, "priority": 0, "healthy": True}
    assert set(client.statuses) == {200}


async def test_a_source_that_fails_keeps_its_replicas_and_says_so(
    stack: ScalingStack, session: aiohttp.ClientSession
) -> None:
    source = "eds"
    client = Client(stack, session, source)
    await begin(stack, client, source)
    await client.spread("outage", set(stack.replicas[:3]), each=2)
    before = (await stack.discovery(source))["failures"]

    await stack.plane.stop()
    await state(stack, source, "stale")
    await settled(stack, source)
    assert await client.moved() == set()
    assert set((await stack.discovery(source))["replicas"]) == set(stack.replicas[:3])

    await stack.plane.start()
    await state(stack, source, "ok")
    assert (await stack.discovery(source))["failures"] > before
    assert set(client.statuses) == {200}
    log = stack.routers[0].log.read_text().splitlines()
    ours = [line for line in log if f"source={stack.url_of(source)}" in line.split()]
    assert [line for line in ours if "discovery fails" in line]
    assert len(ours) % 2 == 0  # each outage once, and its end


async def state(stack: ScalingStack, source: str, wanted: str) -> None:
    async with asyncio.timeout(LIMIT_S):
        while (await stack.discovery(source))["state"] != wanted:
            await asyncio.sleep(0.05)
