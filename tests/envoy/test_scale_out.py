"""A pool that doubles: conversations stay where they are, new ones go to the new replicas."""

import asyncio
from collections import Counter
from typing import Any

import aiohttp
import pytest

from tests.envoy.scaling import LIMIT_S, ScalingStack, scaling

pytestmark = [pytest.mark.asyncio, pytest.mark.timeout(240)]

SYSTEM = "You are a careful assistant."
SAID = "And what is to be said about that? " * 20


class Chats:
    """Conversations that each take their turns one after the other."""

    def __init__(self, stack: ScalingStack, session: aiohttp.ClientSession) -> None:
        self.homes: dict[int, str] = {}
        self.statuses: Counter[int] = Counter()
        self._turns: Counter[int] = Counter()
        self._session = session
        self._url = stack.url("file") + "/v1/chat/completions"

    async def turn(self, number: int) -> str:
        """Take a conversation's next turn; who answers."""
        self._turns[number] += 1
        messages: list[Any] = [{"role": "system", "content": f"{number}: {SYSTEM}"}]
        for each in range(self._turns[number]):
            messages.append({"role": "user", "content": f"{number} {each} {SAID}"})
            messages.append({"role": "assistant", "content": f"{each}"})
        body = {"model": "m", "max_tokens": 1, "messages": messages[:-1]}
        async with self._session.post(self._url, json=body) as reply:
            await reply.read()
            self.statuses[reply.status] += 1
            self.homes[number] = reply.headers.get("x-replica", "")
            return self.homes[number]

    async def begin(self, numbers: range) -> Counter[str]:
        """Begin conversations, a few at a time; how many each replica got."""
        served: Counter[str] = Counter()
        for start in range(numbers.start, numbers.stop, 8):
            batch = range(start, min(start + 8, numbers.stop))
            served.update(await asyncio.gather(*map(self.turn, batch)))
        return served


async def test_from_four_to_eight() -> None:
    async with (
        scaling(["file"], replicas=8, at_first=4, settings={"x-prefix-slow-start": "3s"}) as stack,
        aiohttp.ClientSession() as session,
    ):
        chats, old, new = Chats(stack, session), stack.replicas[:4], stack.replicas[4:]
        await chats.turn(0)
        await stack.followed("file", old)
        first = await chats.begin(range(1, 81))
        assert set(first) <= set(old)
        before = dict(chats.homes)

        stack.serve(stack.replicas)
        await stack.followed("file", stack.replicas)
        for number in before:
            await chats.turn(number)
        assert {n: chats.homes[n] for n in before} == before, "nobody moves without need"

        async with asyncio.timeout(LIMIT_S):
            served: Counter[str] = Counter()
            start = 100
            while not all(served[replica] >= 3 for replica in new):
                served += await chats.begin(range(start, start + 40))
                start += 40
        for number in before:
            await chats.turn(number)
        assert {n: chats.homes[n] for n in before} == before
        assert set(chats.statuses) == {200}
