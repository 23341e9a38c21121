"""What a restart of an engine does, and by what it can be told."""

import random

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from extproc.lab.vllm import BLOCK_TOKENS
from tests.vllm.chats import agent, turns
from tests.vllm.conftest import SERVERS_START_S, Stage

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.timeout(3600),
    pytest.mark.asyncio(loop_scope="session"),
]

POOL = "restarted"
"""A pool of the second server alone."""


async def started_at(http: aiohttp.ClientSession, address: str) -> float:
    """When an engine says that its process started, in seconds since 1970."""
    async with http.get(f"http://{address}/metrics") as reply:
        text = await reply.text()
    samples = (
        sample for family in text_string_to_metric_families(text) for sample in family.samples
    )
    return next(s.value for s in samples if s.name == "process_start_time_seconds")


async def test_a_restart_empties_the_cache_and_shows_in_the_start_time(stage: Stage) -> None:
    """The prediction behind a restart is not compared: only its TTL ends what is not told."""
    rng = random.Random("restart")
    someone = agent(rng)
    server = stage.servers[1]
    sequence = list(turns(someone, rng, 4))

    await stage.ask(POOL, "before the restart", 0, someone, sequence[0])
    row = await stage.ask(POOL, "before the restart", 1, someone, sequence[1])
    assert row.answer.usage.cached > 10 * BLOCK_TOKENS
    assert row.is_explained
    before = await started_at(stage.http, server.address)

    await server.restart(SERVERS_START_S)
    stage.forgot(server)

    assert await started_at(stage.http, server.address) > before
    row = await stage.ask(POOL, "after the restart", 2, someone, sequence[2])
    assert row.answer.served_by == server.address
    assert row.answer.usage.cached <= BLOCK_TOKENS
    row = await stage.ask(POOL, "after the restart", 3, someone, sequence[3])
    assert row.answer.usage.cached > 10 * BLOCK_TOKENS
    assert row.is_explained
