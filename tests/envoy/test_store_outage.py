"""The shared store goes away under traffic and comes back: no request notices."""

import asyncio
import random
import re
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import aiohttp
import pytest
import pytest_asyncio

from extproc.lab.processes import Part
from extproc.lab.stack import LocalStack, ReplicaOptions, Router
from extproc.routing import Strategy
from tests.envoy.books import balanced, readiness, until
from tests.envoy.conftest import get_json
from tests.envoy.conversation import begin, converse, go_on, through

pytestmark = pytest.mark.asyncio(loop_scope="module")

STRATEGY = Strategy.KV_AWARE
DEADLINE_MS = 500
BOUND_S = "1.0"
"""A bucket of the histogram of decisions: the store's deadline, and the machine's noise."""
PAUSE_S = 0.03
DECISIONS = 50

Step = Callable[[Part], Awaitable[None]]


async def stop(valkey: Part) -> None:
    await valkey.kill()


async def start(valkey: Part) -> None:
    await valkey.start()


async def freeze(valkey: Part) -> None:
    valkey.pause()


async def thaw(valkey: Part) -> None:
    valkey.resume()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stack() -> AsyncIterator[LocalStack]:
    async with LocalStack(
        [through(router, STRATEGY) for router in range(2)],
        routers=2,
        replicas=4,
        replica_options=ReplicaOptions(speed=float("inf"), per_process=4),
        router_arguments=["--store-deadline-ms", str(DEADLINE_MS)],
    ) as started:
        yield started


class Traffic:
    """Requests one after the other through each router, by what became of them."""

    def __init__(self, session: aiohttp.ClientSession, urls: list[str]) -> None:
        self.outcomes: Counter[str] = Counter()
        self._session = session
        self._urls = urls

    @asynccontextmanager
    async def flowing(self) -> AsyncIterator[None]:
        ending = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            for number, url in enumerate(self._urls):
                group.create_task(self._flow(url, random.Random(number), ending))
            try:
                yield
            finally:
                ending.set()

    async def _flow(self, url: str, chance: random.Random, ending: asyncio.Event) -> None:
        while not ending.is_set():
            try:
                await begin(self._session, url, chance)
                self.outcomes["answered"] += 1
            except (AssertionError, aiohttp.ClientError, TimeoutError) as error:
                self.outcomes[repr(error)] += 1
            await asyncio.sleep(PAUSE_S)


async def decisions(router: Router) -> Counter[str]:
    """How many there were, how many of them unshared, and how many by no one's choice."""
    pool = (await get_json(f"{router.admin}/pools"))[STRATEGY.value]
    return Counter(
        all=pool["decisions"],
        unshared=pool["unshared_decisions"],
        fallback=pool["reasons"].get("fallback", 0),
    )


async def late(router: Router) -> float:
    """How many decisions took longer than ``BOUND_S``."""
    async with aiohttp.ClientSession() as session, session.get(f"{router.admin}/metrics") as reply:
        text = await reply.text()
    name = "prefix_extproc_decision_seconds"
    in_time = re.search(rf'^{name}_bucket{{le="{BOUND_S}"}} (.+)$', text, re.MULTILINE)
    count = re.search(rf"^{name}_count (.+)$", text, re.MULTILINE)
    assert in_time
    assert count
    return float(count[1]) - float(in_time[1])


async def all_are(routers: list[Router], status: str) -> bool:
    return all([await readiness(router.admin) == status for router in routers])


@pytest.mark.parametrize(
    ("lose", "bring_back"), [(stop, start), (freeze, thaw)], ids=["stopped", "silent"]
)
async def test_the_store_goes_away_and_comes_back(
    stack: LocalStack, lose: Step, bring_back: Step
) -> None:
    valkey, routers = stack.valkey, stack.routers
    assert valkey is not None
    urls = [stack.url(f"{STRATEGY}-{router}") for router in range(2)]
    chance = random.Random(f"{lose}")
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=20)) as session:
        traffic = Traffic(session, urls)
        async with asyncio.timeout(60), traffic.flowing():
            assert (await converse(session, urls, chance))[0] != ""
            assert await all_are(routers, "ok")

            await lose(valkey)
            await until(lambda: all_are(routers, "degraded"), 15)
            before = [await decisions(router) for router in routers]
            during = [await begin(session, urls[0], chance) for _ in range(10)]
            for router, earlier in zip(routers, before, strict=True):
                await until(lambda: goes_on(router, earlier), 15)  # noqa: B023  # awaited at once
            assert await all_are(routers, "degraded")

            await bring_back(valkey)
            await until(lambda: all_are(routers, "ok"), 15)
            after = [await converse(session, urls, chance) for _ in range(20)]
            second = [await go_on(session, urls[1], turn) for turn in during]
    assert traffic.outcomes.keys() == {"answered"}
    assert [turns for turns in after if turns[0] != turns[1]] == [], "shared again"
    assert second == [turn.replica for turn in during], "what was learned alone is told"
    assert [await late(router) for router in routers] == [0, 0]
    assert [(await decisions(router))["fallback"] for router in routers] == [0, 0]
    await until(lambda: balanced(stack), 10)


async def goes_on(router: Router, before: Counter[str]) -> bool:
    """Whether enough decisions were made since, each from the router's own memory."""
    now = await decisions(router)
    assert now["all"] - before["all"] == now["unshared"] - before["unshared"]
    return now["all"] - before["all"] >= DECISIONS
