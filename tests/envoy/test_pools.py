"""Pools that are learned, watched in shadow mode, or set apart by route, on the real Envoy."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from extproc.lab.envoy_clusters import REPLICAS_CLUSTER
from extproc.lab.envoy_config import ListenerConfig, RouteOverride
from extproc.lab.stack import LocalStack, ReplicaOptions
from extproc.replicas.observation import LEAST_PICKS
from tests.envoy.conftest import get_json

pytestmark = pytest.mark.asyncio(loop_scope="module")

LONG = "All work and no play makes a long prompt. " * 60
NOBODY = "127.0.0.1:1"
CHAT = "/v1/chat/completions"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pools() -> AsyncIterator[LocalStack]:
    listeners = [
        ListenerConfig("observed", metadata={"x-prefix-pool": "observed"}, static_replicas=False),
        ListenerConfig("shadow", metadata={"x-prefix-pool": "shadow", "x-prefix-mode": "shadow"}),
        ListenerConfig("listed", metadata={"x-prefix-pool": "moved", "x-prefix-replicas": NOBODY}),
        ListenerConfig("moved", metadata={"x-prefix-pool": "moved"}, static_replicas=False),
        ListenerConfig(
            "routes",
            metadata={"x-prefix-strategy": "random", "x-prefix-length": "nonsense"},
            routes=[
                RouteOverride(
                    "/v1/chat",
                    {"x-prefix-strategy": "kv_aware", "x-prefix-pool": "100% a:b,[::1]"},
                )
            ],
        ),
        ListenerConfig("by-cluster"),
    ]
    async with LocalStack(
        listeners,
        replicas=3,
        store="memory://",
        replica_options=ReplicaOptions(speed=float("inf"), per_process=3),
    ) as started:
        yield started


@pytest_asyncio.fixture(loop_scope="module")
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as opened:
        yield opened


async def ask(
    session: aiohttp.ClientSession, stack: LocalStack, listener: str, text: str, path: str = CHAT
) -> str:
    """The replica that answered."""
    body: dict[str, Any] = {"model": "m", "max_tokens": 1}
    body |= {"messages": [{"role": "user", "content": text}]} if path == CHAT else {"prompt": text}
    async with session.post(stack.url(listener) + path, json=body) as reply:
        await reply.read()
        assert reply.status == 200
        return reply.headers["x-replica"]


async def pool_of(stack: LocalStack, name: str) -> dict[str, Any]:
    """A pool's page, once every request has ended."""
    async with asyncio.timeout(10):
        while (await get_json(f"{stack.routers[0].admin}/readyz"))["open_streams"]:
            await asyncio.sleep(0.02)
    found: dict[str, Any] = (await get_json(f"{stack.routers[0].admin}/pools"))[name]
    return found


async def test_a_pool_is_learned_from_who_serves(
    pools: LocalStack, session: aiohttp.ClientSession
) -> None:
    first = await ask(session, pools, "observed", "first " + LONG)
    assert await ask(session, pools, "observed", "first " + LONG) == first

    before = 2 * LEAST_PICKS
    for number in range(before):
        await ask(session, pools, "observed", f"{number} {LONG}")
    learned = await pool_of(pools, "observed")
    assert sorted(learned["replicas"]) == sorted(pools.replicas)
    assert learned["reasons"]["matched"] == 1
    assert learned["reasons"]["observing"] >= LEAST_PICKS - 1
    assert learned["reasons"].get("cold", 0) > 0

    for number in range(before):
        await ask(session, pools, "observed", f"{number} {LONG}")
    again = await pool_of(pools, "observed")
    assert again["reasons"]["matched"] == 1 + before
    assert again["outcomes"].keys() == {"envoy", "first"}


async def test_a_member_that_envoy_does_not_have_is_dropped(
    pools: LocalStack, session: aiohttp.ClientSession
) -> None:
    assert await ask(session, pools, "listed", LONG) in pools.replicas
    moved = await pool_of(pools, "moved")
    assert NOBODY in moved["replicas"]
    assert moved["outcomes"] == {"elsewhere": 1}

    for number in range(3 * LEAST_PICKS):
        await ask(session, pools, "moved", f"{number} {LONG}")

    moved = await pool_of(pools, "moved")
    assert sorted(moved["replicas"]) == sorted(pools.replicas)
    assert moved["outcomes"]["elsewhere"] == 2


async def test_shadow_leaves_the_choice_to_envoy_and_counts(
    pools: LocalStack, session: aiohttp.ClientSession
) -> None:
    served = {await ask(session, pools, "shadow", LONG) for _ in range(40)}

    shadow = (await pool_of(pools, "shadow"))["shadow"]
    assert served == set(pools.replicas)
    assert shadow["requests"] == 40
    assert 0 < shadow["agreed"] < 40
    assert shadow["rate"] > shadow["served_rate"] > 0


async def test_a_route_has_settings_of_its_own(
    pools: LocalStack, session: aiohttp.ClientSession
) -> None:
    chat = {await ask(session, pools, "routes", LONG) for _ in range(10)}
    other = {await ask(session, pools, "routes", LONG, "/v1/completions") for _ in range(40)}

    assert len(chat) == 1
    assert other == set(pools.replicas)
    assert (await pool_of(pools, "100% a:b,[::1]"))["settings"]["strategy"] == "kv_aware"


async def test_a_bad_setting_is_logged_once_with_its_route(
    pools: LocalStack, session: aiohttp.ClientSession
) -> None:
    for _ in range(3):
        await ask(session, pools, "routes", LONG)

    log = [line for line in pools.routers[0].log.read_text().splitlines() if "nonsense" in line]
    assert log
    assert all("x-prefix-length" in line and "4096 holds" in line for line in log)
    assert len(log) == len(set(log)) <= 4


async def test_without_a_name_the_pool_is_the_cluster(
    pools: LocalStack, session: aiohttp.ClientSession
) -> None:
    await ask(session, pools, "by-cluster", LONG)

    assert (await pool_of(pools, REPLICAS_CLUSTER))["decisions"] >= 1
