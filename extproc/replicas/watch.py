"""Watches one discovery source in the background: one watch for each URL in a process."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from random import uniform
from time import monotonic
from typing import Protocol

import structlog

from extproc.replicas.endpoint import Endpoint, SourceError, listing

_log = structlog.get_logger(__name__)

IDLE_S = 600.0
_FIRST_RETRY_S = 0.25
_LAST_RETRY_S = 5.0


class Sink(Protocol):
    """Takes in what a feed finds out."""

    def heard(self, endpoints: Iterable[Endpoint]) -> None:
        """Take in who is there now, changed or not."""

    def failed(self, error: SourceError) -> None:
        """Take in that the source cannot tell at the moment."""


class Feed(Protocol):
    """Knows one kind of source."""

    async def follow(self, sink: Sink) -> None:
        """Tell ``sink`` who is there, again and again; cancelled when nobody wants to know.

        Raises:
            SourceError: The source failed; it is followed again after a pause.
        """


class State(StrEnum):
    """How a source is doing."""

    WAITING = "waiting"
    """It has not answered yet."""
    OK = "ok"
    STALE = "stale"
    """It fails: the replicas are those that it told last."""
    FAILING = "failing"
    """It fails, and never has answered."""


@dataclass(frozen=True, slots=True)
class SourceStatus:
    """How a source is doing, for pages and metrics.

    Attributes:
        kind: The scheme of its URL.
        state: How it is doing.
        age_s: Seconds since its last answer; None before the first. Streams answer at changes.
        error: What is wrong; empty where nothing is.
        failures: Outages since the watch began.
        endpoints: Who is there, as last told.
    """

    kind: str
    state: State
    age_s: float | None
    error: str
    failures: int
    endpoints: tuple[Endpoint, ...]


class Watch:
    """The replicas of one URL.

    It begins at ``start`` and ends by itself when nobody has called ``touch`` for ``idle_s``.

    Args:
        url: The discovery URL, for the logs.
        feed: Knows the source.
        on_end: Called when it has ended by itself.
        idle_s: Seconds without use after which it ends.
        sleep: Waits before a failed source is tried again.
    """

    def __init__(
        self,
        url: str,
        feed: Feed,
        *,
        on_end: Callable[[], None] = lambda: None,
        idle_s: float = IDLE_S,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.kind = url.partition(":")[0]
        self.endpoints: tuple[Endpoint, ...] | None = None
        self.listeners: list[Callable[[tuple[Endpoint, ...]], None]] = []
        self._url = url
        self._feed = feed
        self._on_end = on_end
        self._idle_s = idle_s
        self._sleep = sleep
        self._error = ""
        self._failures = 0
        self._retries = 0
        self._answered_at = 0.0
        self._used_at = monotonic()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin to follow the source."""
        self._tasks = [
            asyncio.create_task(work, name=f"discovery {self.kind}")
            for work in (self._run(), self._expire())
        ]

    async def close(self) -> None:
        """Stop following it."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def touch(self) -> None:
        """Tell that somebody still wants to know."""
        self._used_at = monotonic()

    def heard(self, endpoints: Iterable[Endpoint]) -> None:
        """See ``Sink.heard``."""
        found = listing(endpoints)
        if self._error:
            _log.info("discovery is back", source=self._url, replicas=len(found))
        self._error = ""
        self._retries = 0
        self._answered_at = monotonic()
        self.endpoints = found
        for listener in list(self.listeners):
            listener(found)

    def failed(self, error: SourceError) -> None:
        """See ``Sink.failed``; logged once for each outage."""
        if not self._error:
            self._failures += 1
            _log.warning(
                "discovery fails",
                source=self._url,
                error=str(error),
                goes_on="with the replicas that it told last"
                if self.endpoints is not None
                else "with what is learned from who serves",
            )
        self._error = str(error)

    def status(self) -> SourceStatus:
        """How the source is doing."""
        if self.endpoints is None:
            state = State.FAILING if self._error else State.WAITING
        else:
            state = State.STALE if self._error else State.OK
        age = None if self.endpoints is None else monotonic() - self._answered_at
        return SourceStatus(
            self.kind, state, age, self._error, self._failures, self.endpoints or ()
        )

    async def _run(self) -> None:
        while True:
            try:
                await self._feed.follow(self)
            except SourceError as error:
                self.failed(error)
            except Exception as fault:  # noqa: BLE001  # no fault of ours may end the watch
                self.failed(SourceError(f"fault of this server: {type(fault).__name__}"))
            pause = min(_LAST_RETRY_S, _FIRST_RETRY_S * 2 ** min(self._retries, 10))
            self._retries += 1
            await self._sleep(uniform(pause / 2, pause))  # noqa: S311  # spreads load, hides nothing

    async def _expire(self) -> None:
        while True:
            left = self._used_at + self._idle_s - monotonic()
            if left <= 0:
                break
            await asyncio.sleep(left)
        self._tasks[0].cancel()
        self._on_end()
