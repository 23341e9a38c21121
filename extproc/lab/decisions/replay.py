"""Drives the server's own code without Envoy and without time: the same in, the same out."""

import asyncio
import random
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any
from unittest import mock

import grpc
from envoy.service.ext_proc.v3 import external_processor_pb2 as pb

from extproc.affinity.memory import MemoryStore
from extproc.lab.decisions.requests import Plan, plans, response, trailers
from extproc.processing import DESTINATION
from extproc.replicas.health import Health
from extproc.server.metrics import Metrics
from extproc.server.router import Router
from extproc.server.stats import Stats
from extproc.server.stream import Processor

OPEN = 48
"""Requests that are open at a time."""

_STEP_S = 0.001
_START_S = 1_000_000


class Clock:
    """Time that goes on by a millisecond with each message."""

    def __init__(self) -> None:
        self._now_us = _START_S * 1_000_000

    def turn(self) -> None:
        """A message later."""
        self._now_us += int(_STEP_S * 1_000_000)

    def micros(self) -> int:
        """Microseconds."""
        return self._now_us

    def seconds(self) -> float:
        """Seconds."""
        return self._now_us / 1_000_000


@dataclass(frozen=True, slots=True)
class Replayed:
    """What came out.

    Attributes:
        requests: How many were sent.
        digest: Of every reply to every request, as hexadecimal digits.
        reasons: How many decisions had each reason.
        faults: Faults of the server's own.
    """

    requests: int
    digest: str
    reasons: dict[str, int]
    faults: int


class _Envoy:
    """Envoy's end of one stream: what the server reads and writes goes through here."""

    def __init__(self, plan: Plan, clock: Clock) -> None:
        self._plan = plan
        self._clock = clock
        self._messages = self._script()
        self.replies = blake2b(digest_size=16)
        self._chosen = ""

    def invocation_metadata(self) -> Any:
        return self._plan.metadata

    async def read(self) -> Any:
        self._clock.turn()
        message = next(self._messages, grpc.aio.EOF)
        if message is None:  # the replica takes its time; others go on
            for _ in range(self._plan.turns):
                await asyncio.sleep(0)
            message = next(self._messages, grpc.aio.EOF)
        return message

    async def write(self, message: Any) -> None:
        reply = pb.ProcessingResponse.FromString(
            message if isinstance(message, bytes) else message.SerializeToString()
        )
        self.replies.update(reply.SerializeToString(deterministic=True))
        fields = reply.dynamic_metadata.fields
        if "envoy.lb" in fields:
            self._chosen = fields["envoy.lb"].struct_value.fields[DESTINATION].string_value
        await asyncio.sleep(0)

    def _script(self) -> Iterator[Any]:
        plan = self._plan
        yield from plan.messages
        yield None
        if plan.status:
            first = self._chosen.partition(",")[0]
            yield response(plan.overruled or first or "10.0.0.9:8000", plan)
            yield None
            yield trailers()


def replay(requests: int, *, seed: int = 1) -> Replayed:
    """Send requests through the server, ``OPEN`` at a time, and hash what it answers.

    Args:
        requests: How many.
        seed: Of the requests, and of what the server draws.
    """
    clock = Clock()
    with _stopped(clock):
        random.seed(seed)  # ties are broken by chance where nothing else tells
        return asyncio.run(_replay(requests, seed, clock))


async def _replay(requests: int, seed: int, clock: Clock) -> Replayed:
    stats = Stats()
    store = MemoryStore(clock=clock.micros)
    router = Router(store, window=512 * 1024, incarnation="replay", stats=stats)
    processor = Processor(router, Metrics(stats, store.status, router.discovery.statuses))
    digest = blake2b(digest_size=16)
    waiting = enumerate(plans(seed, requests))
    ended: dict[int, bytes] = {}

    async def client() -> None:
        for number, plan in waiting:
            envoy = _Envoy(plan, clock)
            await processor.Process(None, envoy)  # type: ignore[arg-type]  # all that it uses
            ended[number] = envoy.replies.digest()

    await asyncio.gather(*(client() for _ in range(OPEN)))
    await router.settle()
    await router.close()
    for _, replies in sorted(ended.items()):
        digest.update(replies)
    reasons: dict[str, int] = {}
    for pool in stats.pools.values():
        for reason, count in pool.reasons.items():
            reasons[reason.value] = reasons.get(reason.value, 0) + count
    faults = stats.errors.total()
    return Replayed(len(ended), digest.hexdigest(), dict(sorted(reasons.items())), faults)


@contextmanager
def _stopped(clock: Clock) -> Iterator[None]:
    """Give the server our time, wherever its modules took the system's."""
    defaults = dict(Health.__init__.__kwdefaults__ or {}, clock=clock.seconds)
    patches: list[Any] = [mock.patch.object(Health.__init__, "__kwdefaults__", defaults)]
    for name, module in list(sys.modules.items()):
        if name.startswith("extproc.") and getattr(module, "monotonic", None) is time.monotonic:
            patches.append(mock.patch.object(module, "monotonic", clock.seconds))
    for patch in patches:
        patch.start()
    try:
        yield
    finally:
        for patch in patches:
            patch.stop()
