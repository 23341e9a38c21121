"""Conversations of two turns, each turn through a router of its own."""

import asyncio
import json
import random
from typing import NamedTuple

import aiohttp

from extproc.lab.envoy_config import ListenerConfig
from extproc.routing import Strategy

THINK_S = 0.02


def through(router: int, strategy: Strategy) -> ListenerConfig:
    """A listener that uses one router, before replicas that take no time to prefill."""
    metadata = {
        "x-prefix-pool": strategy.value,
        "x-prefix-strategy": strategy.value,
        "x-prefix-length": "2048",
        "x-prefix-prefill-rate": "10000000",
    }
    return ListenerConfig(
        f"{strategy}-{router}", metadata=metadata, router=router, message_timeout_s=5.0
    )


class FirstTurn(NamedTuple):
    """What came of a first turn: who served it, and the conversation so far."""

    replica: str
    messages: list[dict[str, str]]


async def begin(session: aiohttp.ClientSession, url: str, chance: random.Random) -> FirstTurn:
    """A first turn of 3,000 to 4,000 characters that no other begins like."""
    text = chance.randbytes(chance.randint(1_500, 2_000)).hex()
    messages = [{"role": "user", "content": text}]
    replica, answer = await ask(session, url, messages)
    return FirstTurn(replica, [*messages, {"role": "assistant", "content": answer}])


async def go_on(session: aiohttp.ClientSession, url: str, turn: FirstTurn) -> str:
    """A second turn; who served it."""
    question = {"role": "user", "content": "And then?"}
    replica, _ = await ask(session, url, [*turn.messages, question])
    return replica


async def converse(
    session: aiohttp.ClientSession, urls: list[str], chance: random.Random
) -> tuple[str, str]:
    """The replicas of both turns, each through the router behind its URL."""
    turn = await begin(session, urls[0], chance)
    await asyncio.sleep(THINK_S)
    return turn.replica, await go_on(session, urls[1], turn)


async def ask(
    session: aiohttp.ClientSession, url: str, messages: list[dict[str, str]]
) -> tuple[str, str]:
    """The replica that answered, and what it said."""
    body = {"model": "m", "max_tokens": 8, "messages": messages}
    async with session.post(f"{url}/v1/chat/completions", json=body) as reply:
        assert reply.status == 200
        answer = json.loads(await reply.read())
        return reply.headers["x-replica"], answer["choices"][0]["message"]["content"]
