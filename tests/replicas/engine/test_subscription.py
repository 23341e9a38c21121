"""Following a publisher that speaks as vLLM's does."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
import zmq
import zmq.asyncio
from structlog.testing import capture_logs

from extproc.affinity import MemoryStore
from extproc.replicas.engine.follower import Follower
from extproc.replicas.engine.kv_events import number_bytes
from extproc.replicas.engine.state import EngineState
from extproc.replicas.engine.subscription import Subscriptions
from tests.replicas.sinks import LIMIT_S

A = "127.0.0.1:80"
STORED = {"type": "BlockStored", "block_hashes": [b"a"], "block_size": 16, "token_ids": [1]}
REMOVED = {"type": "BlockRemoved", "block_hashes": [b"a"]}
CLEARED = {"type": "AllBlocksCleared"}


class Publisher:
    """A stream of events, and what can be had of it again."""

    def __init__(self, context: zmq.asyncio.Context) -> None:
        self._stream = context.socket(zmq.PUB)
        self._replay = context.socket(zmq.ROUTER)
        self.port = self._stream.bind_to_random_port("tcp://127.0.0.1")
        self.replay_port = self._replay.bind_to_random_port("tcp://127.0.0.1")
        self.number = 0
        self.kept: list[tuple[int, bytes]] = []
        self.asked: list[int] = []

    async def publish(self, *events: Any, lost: bool = False) -> None:
        payload = msgspec.msgpack.encode([1.0, list(events), 0])
        self.kept.append((self.number, payload))
        if not lost:
            await self._stream.send_multipart([b"kv", number_bytes(self.number), payload])
        self.number += 1

    async def send(self, *frames: bytes) -> None:
        await self._stream.send_multipart(frames)

    async def answer(self) -> None:
        while True:
            who, empty, start = await self._replay.recv_multipart()
            self.asked.append(int.from_bytes(start, "big"))
            for number, payload in self.kept:
                if number >= self.asked[-1]:
                    again = [who, empty, b"kv", number_bytes(number), payload]
                    await self._replay.send_multipart(again)
            await self._replay.send_multipart([who, empty, b"", b"\xff" * 8, b""])


class World:
    """A publisher, and a router that follows it."""

    def __init__(self, publisher: Publisher) -> None:
        self.publisher = publisher
        self.store = MemoryStore()
        self.store.join("pool", [A])
        self.follower = Follower("pool", self.store)

    async def incarnation(self) -> str:
        return (await self.store.snapshot("pool"))[A].incarnation

    def counted(self) -> tuple[int, int]:
        engine = self.follower._engines.get(A)
        return (engine.events, engine.removed) if engine else (0, 0)

    async def until(self, events: int) -> None:
        async with asyncio.timeout(LIMIT_S):
            while self.counted()[0] < events:
                await asyncio.sleep(0.01)


@asynccontextmanager
async def following(*, replay: bool = True) -> AsyncIterator[World]:
    with zmq.asyncio.Context() as context:
        publisher = Publisher(context)
        world = World(publisher)
        answering = asyncio.create_task(publisher.answer())
        subscriptions = Subscriptions(
            world.follower,
            lambda: [A],
            lambda _address: True,
            port=publisher.port,
            replay_port=publisher.replay_port if replay else 0,
        )
        subscriptions.start()
        async with asyncio.timeout(LIMIT_S):
            while not world.counted()[0]:  # a subscription takes a moment to arrive
                await publisher.publish(STORED)
                await asyncio.sleep(0.05)
        await world.until(1)
        try:
            yield world
        finally:
            await subscriptions.close()
            answering.cancel()
            await asyncio.gather(answering, return_exceptions=True)
            context.destroy(linger=0)


async def test_a_cleared_cache_voids_at_once() -> None:
    async with following() as world:
        seen = world.counted()[0]
        assert not await world.incarnation()
        await world.publisher.publish(REMOVED, CLEARED)
        await world.until(seen + 2)
        first = await world.incarnation()
        assert first
        (state,) = (await world.store.snapshot("pool")).values()
        assert state.epoch > 0
        await world.publisher.publish(CLEARED)
        await world.until(seen + 3)
        assert await world.incarnation() != first


async def test_a_publisher_that_counts_anew_has_restarted() -> None:
    async with following() as world:
        seen = world.counted()[0]
        world.publisher.number, world.publisher.kept = 0, []
        await world.publisher.publish(STORED)
        await world.until(seen + 1)
        assert await world.incarnation()


async def test_missed_events_are_asked_for_again() -> None:
    async with following() as world:
        seen, number = world.counted()[0], world.publisher.number
        await world.publisher.publish(REMOVED, lost=True)
        await world.publisher.publish(CLEARED, lost=True)
        await world.publisher.publish(STORED)
        await world.until(seen + 3)
        assert world.publisher.asked == [number]
        assert await world.incarnation()


@pytest.mark.parametrize("replay", [True, False])
async def test_what_is_lost_for_good_is_passed_over(*, replay: bool) -> None:
    async with following(replay=replay) as world:
        seen = world.counted()[0]
        await world.publisher.publish(REMOVED, lost=True)
        world.publisher.kept = []
        await world.publisher.publish(STORED)
        await world.until(seen + 1)
        await world.publisher.publish(REMOVED)
        await world.until(seen + 2)
        assert not await world.incarnation()


async def test_nonsense_is_passed_over_and_logged_once() -> None:
    async with following() as world:
        seen = world.counted()[0]
        with capture_logs() as logs:
            await world.publisher.send(b"x")
            await world.publisher.send(b"kv", number_bytes(world.publisher.number), b"\xc1")
            world.publisher.number += 1
            await world.publisher.publish(REMOVED)
            await world.until(seen + 1)
        assert [log["event"] for log in logs] == ["KV events not read"]


async def test_evictions_are_told_with_the_metrics() -> None:
    async with following() as world:
        seen = world.counted()[0]
        await world.publisher.publish(STORED, REMOVED)
        await world.until(seen + 2)
        members = await world.follower.members()
        world.follower.look(A, EngineState("vllm", running=1), members, ours=0, ttl_s=60)
        (text,) = world.store.board("pool").values()
        assert '"evicted_tokens":16' in text
