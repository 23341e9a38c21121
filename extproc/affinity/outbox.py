"""News for the shared store that no request waits for."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from extproc.affinity.store import StoreError

_LIMIT = 10_000
"""Most news kept for a store that does not answer; what is lost is repaired or learned again."""


class _News(NamedTuple):
    pool: str
    run: Callable[[], Awaitable[None]] | None
    release: str = ""


class Outbox:
    """Sends news at once, pool by pool, in order; releases that wait together go in one call.

    Args:
        release: Sends a pool's releases.
        failed: Told the pool whose news were lost.
    """

    def __init__(
        self,
        release: Callable[[str, Sequence[str]], Awaitable[None]],
        failed: Callable[[str], None],
    ) -> None:
        self._release = release
        self._failed = failed
        self._news: list[_News] = []
        self._wake = asyncio.Event()
        self._sender: asyncio.Task[None] | None = None
        self._stopping = False
        self.suspended = False

    @property
    def waiting(self) -> int:
        """How many news wait to be sent."""
        return len(self._news)

    def start(self) -> None:
        """Begin to send in the background."""
        self._sender = asyncio.create_task(self._send(), name="affinity-outbox")

    async def stop(self) -> None:
        """End the background; what waits can still be flushed."""
        self._stopping = True
        if self._sender is not None:
            self._sender.cancel()
            await asyncio.gather(self._sender, return_exceptions=True)

    def tell(self, pool: str, run: Callable[[], Awaitable[None]]) -> None:
        """Run a call when its turn comes."""
        self._add(_News(pool, run))

    def release(self, pool: str, reservation_id: str) -> None:
        """Release a reservation, behind all other news of its pool."""
        if self.suspended:
            self._failed(pool)
        else:
            self._add(_News(pool, None, reservation_id))

    def suspend(self) -> None:
        """Send nothing until ``resume``. Releases are dropped: the share is repaired as a whole."""
        self.suspended = True
        self._news = [each for each in self._news if not each.release]

    def resume(self) -> None:
        """Send again, beginning with what waited."""
        self.suspended = False
        self._wake.set()

    async def flush(self) -> None:
        """Send everything that waits.

        Raises:
            StoreError: Something could not be sent.
        """
        while self._news:
            batch, self._news = self._news, []
            by_pool: dict[str, list[_News]] = {}
            for each in batch:
                by_pool.setdefault(each.pool, []).append(each)
            outcomes = await asyncio.gather(
                *(self._send_pool(pool, news) for pool, news in by_pool.items()),
                return_exceptions=True,
            )
            for outcome in outcomes:
                if isinstance(outcome, BaseException):
                    raise outcome

    def _add(self, news: _News) -> None:
        if len(self._news) < _LIMIT:
            self._news.append(news)
        else:
            self._failed(news.pool)
        if not self.suspended:
            self._wake.set()

    async def _send_pool(self, pool: str, news: Sequence[_News]) -> None:
        try:
            for each in news:
                if each.run is not None:
                    await each.run()
            ids = [each.release for each in news if each.release]
            if ids:
                await self._release(pool, ids)
        except StoreError:
            self._failed(pool)
            raise

    async def _send(self) -> None:
        while not self._stopping:  # a cancellation can get lost in the client library
            await self._wake.wait()
            self._wake.clear()
            if not self.suspended:
                with contextlib.suppress(StoreError):  # counted, and repaired by the next sync
                    await self.flush()
