"""An engine that restarts or is told to forget, and how the routers hear of it."""

import asyncio
import random
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from extproc.lab.vllm import BLOCK_TOKENS, MODEL_NAME, Server
from tests.vllm.chats import agent, turns
from tests.vllm.conftest import SERVERS_START_S, Stage

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.timeout(3600),
    pytest.mark.asyncio(loop_scope="session"),
]

RESTARTED = "restarted"
"""A pool of the second server alone, whose metrics are asked for."""

CLEARED = "cleared"
"""A pool of the first server alone, whose events are followed, too."""

HEARD_S = 60.0
CACHE_TOKENS = 131_072
"""What a server has room for by its settings."""


async def states(stage: Stage, pool: str, server: Server) -> list[dict[str, Any]]:
    """A replica as each router's ``/pools`` has it."""
    found = []
    for router in stage.stack.routers:
        async with stage.http.get(f"{router.admin}/pools") as reply:
            pools = await reply.json()
        if pool in pools:  # the router has had a request of the pool
            found.append(pools[pool]["replicas"][server.address])
    return found


async def hear(
    stage: Stage, pool: str, server: Server, holds: Callable[[dict[str, Any]], bool]
) -> dict[str, Any]:
    """Wait until it holds at every router that knows the pool; what the last one says."""
    async with asyncio.timeout(HEARD_S):
        while True:
            found = await states(stage, pool, server)
            if found and all(map(holds, found)):
                return found[-1]
            await asyncio.sleep(0.2)


async def step(stage: Stage, server: Server) -> None:
    """Have an engine fill some blocks, past the routers."""
    prompt = " ".join(uuid.uuid4().hex for _ in range(20))
    body = {"model": MODEL_NAME, "prompt": prompt, "max_tokens": 1}
    async with stage.http.post(f"http://{server.address}/v1/completions", json=body) as reply:
        assert reply.status == 200


def told(state: dict[str, Any]) -> bool:
    return bool(state["engine"] and state["engine"].get("queried_tokens"))


async def test_a_restart_empties_the_cache_and_the_routers_hear_of_it(stage: Stage) -> None:
    rng = random.Random("restart")
    someone = agent(rng)
    server = stage.servers[1]
    sequence = list(turns(someone, rng, 4))

    await stage.ask(RESTARTED, "before the restart", 0, someone, sequence[0])
    row = await stage.ask(RESTARTED, "before the restart", 1, someone, sequence[1])
    assert row.answer.usage.cached > 10 * BLOCK_TOKENS
    assert row.is_explained
    before = await hear(stage, RESTARTED, server, told)
    assert before["engine"]["engine"] == "vllm"
    assert before["engine"]["capacity_tokens"] == CACHE_TOKENS
    assert before["incarnation"]

    await server.restart(SERVERS_START_S)
    stage.forgot(server)

    after = await hear(stage, RESTARTED, server, lambda state: state["epoch"] > before["epoch"])
    assert after["incarnation"] != before["incarnation"]
    row = await stage.ask(RESTARTED, "after the restart", 2, someone, sequence[2])
    assert row.answer.served_by == server.address
    assert row.answer.usage.cached <= BLOCK_TOKENS
    assert row.answer.predicted == 0
    row = await stage.ask(RESTARTED, "after the restart", 3, someone, sequence[3])
    assert row.answer.usage.cached > 10 * BLOCK_TOKENS
    assert row.is_explained


async def test_a_cache_that_was_cleared_is_seen_by_its_events(stage: Stage) -> None:
    rng = random.Random("cleared")
    someone = agent(rng)
    server = stage.servers[0]
    sequence = list(turns(someone, rng, 4))
    await stage.ask(CLEARED, "before clearing", 0, someone, sequence[0])

    async with asyncio.timeout(HEARD_S):
        while not any(
            (state["engine"] or {}).get("events") for state in await states(stage, CLEARED, server)
        ):
            await step(stage, server)
    row = await stage.ask(CLEARED, "before clearing", 1, someone, sequence[1])
    assert row.answer.predicted > 10 * BLOCK_TOKENS
    before = await hear(stage, CLEARED, server, told)

    async with stage.http.post(f"http://{server.address}/reset_prefix_cache") as reply:
        assert reply.status == 200
    stage.forgot(server)
    await step(stage, server)  # vLLM publishes with its next one what happened before

    await hear(stage, CLEARED, server, lambda state: state["epoch"] > before["epoch"])
    row = await stage.ask(CLEARED, "after clearing", 2, someone, sequence[2])
    assert row.answer.usage.cached <= BLOCK_TOKENS
    assert row.answer.predicted == 0
    row = await stage.ask(CLEARED, "after clearing", 3, someone, sequence[3])
    assert row.answer.predicted > 10 * BLOCK_TOKENS
    assert row.is_explained
