"""Active health checks: one router of all that serve a pool asks each replica."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable

import aiohttp

from extproc.replicas.health import Health

_FAILURES = 3
_PASSES = 2
_AT_ONCE = 32
_SPARE_S = 2
"""Seconds that a finding outlives the next check, so that a busy router does not drop it."""


class Checks:
    """Asks a pool's replicas at an interval, and tells their health what came of it.

    ``_FAILURES`` failed checks in a row take a replica out, ``_PASSES`` passed ones bring it back.

    Args:
        health: Is told.
        elected: Whether this router is the one to check an address.
        path: What to ask for; every status from 200 to 299 passes.
        interval_s: Seconds from one check to the next; also the longest wait for an answer.
    """

    def __init__(
        self, health: Health, elected: Callable[[str], bool], *, path: str, interval_s: int
    ) -> None:
        self._health = health
        self._elected = elected
        self._path = path
        self._interval_s = interval_s
        self._timeout = aiohttp.ClientTimeout(total=interval_s)
        self._runs: Counter[str] = Counter()  # passed checks in a row, below 0 failed ones
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to check in the background."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name="health-checks")

    async def close(self) -> None:
        """Check no more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        connector = aiohttp.TCPConnector(limit=_AT_ONCE, force_close=True)
        async with aiohttp.ClientSession(timeout=self._timeout, connector=connector) as session:
            while True:
                await self._round(session, self._health.candidates())
                await asyncio.sleep(self._interval_s)

    async def _round(self, session: aiohttp.ClientSession, addresses: Iterable[str]) -> None:
        mine = [each for each in addresses if self._elected(each)]
        self._runs = Counter({each: self._runs[each] for each in mine})
        for address, passed in zip(
            mine, await asyncio.gather(*(self._ask(session, each) for each in mine)), strict=True
        ):
            run = self._runs[address]
            self._runs[address] = run = max(run, 0) + 1 if passed else min(run, 0) - 1
            if run <= -_FAILURES or run >= _PASSES:
                ttl_s = 2 * self._interval_s + _SPARE_S  # an interval, and a wait for an answer
                self._health.checked(address, passed=passed, ttl_s=ttl_s)

    async def _ask(self, session: aiohttp.ClientSession, address: str) -> bool:
        try:
            async with session.get(f"http://{address}{self._path}", allow_redirects=False) as reply:
                return 200 <= reply.status < 300
        except (aiohttp.ClientError, OSError, TimeoutError):
            return False
