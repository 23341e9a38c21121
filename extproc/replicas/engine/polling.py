"""Asking engines for their metrics: one router of all that serve a pool asks each replica."""

import asyncio
from collections.abc import Callable, Sequence

import aiohttp

from extproc.replicas.engine.follower import Follower
from extproc.replicas.engine.state import EngineError, EngineState
from extproc.replicas.engine.text import MOST_BYTES, read_metrics

_AT_ONCE = 16
_LOOKS = 3
_SPARE_S = 2
"""A report holds for ``_LOOKS`` intervals and this: as long as routers may hear late of it."""


class Polling:
    """Asks a pool's engines at an interval.

    Args:
        follower: Is told.
        candidates: Who may be asked.
        elected: Whether this router is the one to ask an address.
        path: Of the metrics.
        interval_s: Seconds from one look to the next; also the longest wait for an answer.
    """

    def __init__(
        self,
        follower: Follower,
        candidates: Callable[[], Sequence[str]],
        elected: Callable[[str], bool],
        *,
        path: str,
        interval_s: int,
    ) -> None:
        self._follower = follower
        self._candidates = candidates
        self._elected = elected
        self._path = path
        self._interval_s = interval_s
        self._timeout = aiohttp.ClientTimeout(total=interval_s)
        self._ttl_s = _LOOKS * interval_s + _SPARE_S
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to ask in the background."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name="engine-metrics")

    async def close(self) -> None:
        """Ask no more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        connector = aiohttp.TCPConnector(limit=_AT_ONCE)
        async with aiohttp.ClientSession(timeout=self._timeout, connector=connector) as session:
            while True:
                await self._round(session)
                await asyncio.sleep(self._interval_s)

    async def _round(self, session: aiohttp.ClientSession) -> None:
        mine = [each for each in self._candidates() if self._elected(each)]
        self._follower.keep(mine)
        if not mine:
            return
        # The routers' own count is taken before and after: what came or went in between is theirs.
        before = await self._follower.members()
        found = await asyncio.gather(*(self._ask(session, each) for each in mine))
        members = await self._follower.members()
        for address, state in zip(mine, found, strict=True):
            if isinstance(state, str):
                self._follower.failed(address, state, self._ttl_s)
                continue
            open_ = [each[address].in_flight for each in (before, members) if address in each]
            ours = max(open_) if open_ else None
            self._follower.look(address, state, members, ours=ours, ttl_s=self._ttl_s)

    async def _ask(self, session: aiohttp.ClientSession, address: str) -> EngineState | str:
        """What an engine tells, or why it does not."""
        try:
            async with session.get(f"http://{address}{self._path}", allow_redirects=False) as reply:
                if reply.status != 200:
                    return f"status {reply.status} of {self._path}"
                page = bytearray()
                async for data in reply.content.iter_any():
                    page += data
                    if len(page) > MOST_BYTES:
                        break
                return read_metrics(bytes(page))
        except EngineError as error:
            return str(error)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            return f"no answer ({type(error).__name__})"
