"""A drill: steady traffic before, during and after a fault, and what became of each request."""

import asyncio
import hashlib
import json
import random
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import Enum
from itertools import count
from operator import gt

import aiohttp

from tests.envoy.books import until

LIMIT_S = 60.0
"""For a machine that is busy with other things."""

SIZES = (500, 500, 8_000, 8_000, 60_000, 300_000)
"""Bytes that prompts have in common with some others; most are short."""

TOPICS = 12


class Outcome(Enum):
    """What a client saw of its request."""

    ANSWERED = "answered"
    """By a replica, which had every byte as it was sent."""
    REFUSED = "refused"
    """By a replica that has an error of its own: who answers is never asked again."""
    CUT = "cut"
    """After the answer's head had come: nobody can try that again."""
    WRONG = "wrong"
    """A replica had other bytes than were sent."""
    FAILED = "failed"
    """Without an answer of a replica."""


@dataclass(frozen=True, slots=True)
class Load:
    """How much traffic.

    Attributes:
        rate: Requests per second.
        seconds: Before, during and after a fault, each.
    """

    rate: float
    seconds: float


@dataclass(slots=True)
class Row:
    """What a drill found.

    Attributes:
        test: Its name.
        fault: In words.
        load: Requests per second.
        outcomes: How many requests had each.
        whole_s: From the mending of the fault until all was as before.
    """

    test: str
    fault: str
    load: float
    outcomes: Counter[Outcome] = field(default_factory=Counter)
    whole_s: float = -1.0

    def cells(self) -> list[str]:
        """As in the table of ``HEAD``."""
        bad = Outcome.FAILED, Outcome.REFUSED, Outcome.CUT, Outcome.WRONG
        numbers = self.outcomes.total(), *(self.outcomes[each] for each in bad)
        load, whole = f"{self.load:g}/s", f"{self.whole_s:.1f} s"
        return [self.fault, load, *map(str, numbers), whole, f"`{self.test}`"]


HEAD = ["fault", "load", "sent", "failed", "refused", "cut", "wrong bytes", "well again", "test"]


def table(rows: Sequence[Row]) -> str:
    """All rows in Markdown."""
    lines = [HEAD, ["---"] * len(HEAD), *(row.cells() for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


class Drill:
    """Traffic that flows while a test breaks things.

    Args:
        url: Where requests go.
        load: How many.
        row: What is found goes in there.
        decisions: How many each router has made.
        seed: Of the prompts.
    """

    def __init__(
        self,
        url: str,
        load: Load,
        row: Row,
        decisions: Callable[[], Awaitable[Sequence[int]]],
        seed: int = 1,
    ) -> None:
        self.row = row
        self.broken: list[str] = []
        """What went wrong, in words, where it should not have."""
        self._url = f"{url}/v1/chat/completions"
        self._load = load
        self._chance = random.Random(seed)
        self._topics = [
            self._chance.randbytes(self._chance.choice(SIZES) // 2).hex() for _ in range(TOPICS)
        ]
        self._answers = 0
        self._decisions = decisions
        self._mended_s = 0.0
        self._decided: Sequence[int] = ()

    async def passes(self) -> None:
        """Let some more requests be answered, of those that are sent from now on."""
        await asyncio.sleep(self._load.seconds)
        wanted = self._answers + max(3, round(self._load.rate / 2))
        async with asyncio.timeout(LIMIT_S):
            while self._answers < wanted:
                await asyncio.sleep(0.02)

    async def pauses(self) -> None:
        """Let as much time pass, whether requests are answered or not."""
        await asyncio.sleep(self._load.seconds)

    async def until(self, condition: Callable[[], Awaitable[bool]]) -> None:
        """Wait for what the fault leads to, while traffic flows."""
        await until(condition, LIMIT_S)

    async def mended(self) -> None:
        """The fault is over: from now on it counts until all is well."""
        self._mended_s = time.monotonic()
        self._decided = await self._decisions()

    async def whole(self, condition: Callable[[], Awaitable[bool]]) -> None:
        """Wait until all is as before, and every router has decided again.

        Raises:
            TimeoutError: If it does not come to that.
        """

        async def well() -> bool:
            return await condition() and all(map(gt, await self._decisions(), self._decided))

        await until(well, LIMIT_S)
        self.row.whole_s = time.monotonic() - self._mended_s

    @asynccontextmanager
    async def flowing(self) -> AsyncIterator[None]:
        """Traffic, until the block ends and its last request too."""
        ending = asyncio.Event()
        timeout = aiohttp.ClientTimeout(total=LIMIT_S)
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(timeout=timeout, connector=connector) as http:
            flow = asyncio.create_task(self._flow(http, ending))
            try:
                yield
            finally:
                ending.set()
                await flow

    async def _flow(self, http: aiohttp.ClientSession, ending: asyncio.Event) -> None:
        """Send in step with the clock, however long answers take."""
        start = time.monotonic()
        async with asyncio.TaskGroup() as group:
            for number in count():
                await asyncio.sleep(start + number / self._load.rate - time.monotonic())
                if ending.is_set():
                    return
                group.create_task(self._count(http))

    async def _count(self, http: aiohttp.ClientSession) -> None:
        outcome, words = await self._send(http, self._body())
        self.row.outcomes[outcome] += 1
        if outcome is Outcome.ANSWERED:
            self._answers += 1
        else:
            self.broken.append(f"{outcome.value}: {words}")

    def _body(self) -> bytes:
        text = f"{self._chance.choice(self._topics)} {uuid.uuid4().hex}"
        message = {"role": "user", "content": text}
        return json.dumps({"model": "m", "max_tokens": 1, "messages": [message]}).encode()

    async def _send(self, http: aiohttp.ClientSession, body: bytes) -> tuple[Outcome, str]:
        headers = {"content-type": "application/json"}
        begun = False
        try:
            async with http.post(self._url, data=body, headers=headers) as reply:
                begun = reply.status == 200
                text = await reply.read()
                details = reply.headers.get("x-details", "")
                if "x-replica" not in reply.headers:
                    cut = "upstream_reset_after_response_started" in details
                    outcome = Outcome.CUT if cut else Outcome.FAILED
                    return outcome, f"{reply.status} {details} {text[:200]!r}"
                if reply.headers["x-body-sha256"] != hashlib.sha256(body).hexdigest():
                    return Outcome.WRONG, f"{len(body)} bytes at {reply.headers['x-replica']}"
                if not begun:
                    return Outcome.REFUSED, f"{reply.status} of {reply.headers['x-replica']}"
                return Outcome.ANSWERED, ""
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            return (Outcome.CUT if begun else Outcome.FAILED), repr(error)
