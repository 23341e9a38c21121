"""Takes in what feeds tell, for tests to look at."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

from extproc.replicas.endpoint import Endpoint, SourceError, listing
from extproc.replicas.watch import Feed

LIMIT_S = 20.0
"""For a machine that is busy with other things; nothing waits that long otherwise."""


class Recorder:
    """A sink that remembers."""

    def __init__(self) -> None:
        self.answers: list[tuple[Endpoint, ...]] = []
        self.problems: list[str] = []
        self._news = asyncio.Event()

    def heard(self, endpoints: Iterable[Endpoint]) -> None:
        self.answers.append(listing(endpoints))
        self._news.set()

    def failed(self, error: SourceError) -> None:
        self.problems.append(str(error))
        self._news.set()

    @property
    def addresses(self) -> tuple[str, ...]:
        """Of the last answer."""
        return tuple(each.address for each in self.answers[-1]) if self.answers else ()

    async def until(self, *addresses: str) -> tuple[Endpoint, ...]:
        """Wait for an answer of exactly these addresses."""
        async with asyncio.timeout(LIMIT_S):
            while not self.answers or self.addresses != tuple(sorted(addresses)):
                await self._next()
        return self.answers[-1]

    async def problem(self, number: int = 1) -> str:
        """Wait for that many problems; the last."""
        async with asyncio.timeout(LIMIT_S):
            while len(self.problems) < number:
                await self._next()
        return self.problems[-1]

    async def _next(self) -> None:
        self._news.clear()
        await self._news.wait()


@asynccontextmanager
async def following(feed: Feed) -> AsyncIterator[Recorder]:
    """A recorder of what a feed tells; what the feed raises counts as a problem."""
    recorder = Recorder()

    async def follow() -> None:
        while True:
            try:
                await feed.follow(recorder)
            except SourceError as error:
                recorder.failed(error)
            await asyncio.sleep(0.02)

    task = asyncio.create_task(follow())
    try:
        yield recorder
    finally:
        task.cancel()
        outcome = await asyncio.gather(task, return_exceptions=True)
        assert isinstance(outcome[0], asyncio.CancelledError), outcome
