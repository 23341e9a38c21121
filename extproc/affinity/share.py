"""A router's share of a pool: what it holds, told to the store again and again, and repaired."""

import time
from collections.abc import Iterator
from typing import Any

from extproc.affinity.directory import PoolDirectory
from extproc.affinity.link import Link
from extproc.affinity.scripts import Value
from extproc.affinity.store import StoreError

STALE = -1
"""What a script answers to a generation that is over."""

_JOIN_EVERY_S = 60.0
"""Seconds after which a replica is named again, or it would be forgotten as unused."""


class StaleIndexError(StoreError):
    """The pool's state was lost or its indexes changed, twice during one call."""

    def __init__(self) -> None:
        super().__init__("the pool's replicas changed twice during one call")


class Share:
    """Signs of life and repairs.

    Args:
        link: The shared store.
        router: This process's name.
        grace_s: Age below which a reservation that the router does not hold is left alone: its
            reply may be on its way.
        silence_s: Seconds without a sign of life after which a router counts as dead.
    """

    def __init__(self, link: Link, router: str, *, grace_s: float, silence_s: int) -> None:
        self._link = link
        self._router = router
        self._grace_us = int(grace_s * 1_000_000)
        self._silence_s = silence_s

    async def sync(self, pool: PoolDirectory) -> None:
        """Show life in a pool, repair this router's share, and take back those of dead routers.

        Raises:
            StoreError: The store did not answer.
        """
        if not pool.generation or time.monotonic() - pool.joined_at > _JOIN_EVERY_S:
            await self._rejoin(pool)
        pool.released = []
        try:
            told = pool.board.before_hearing()
            whole, pool.dirty = pool.dirty, False
            reply = await self._compare(pool, whole=whole)
            if reply[0] == STALE:
                await self._rejoin(pool)
            if reply[0] != 1:
                reply = await self._compare(pool, whole=True)
            if reply[0] == STALE:
                raise StaleIndexError
            # The list may have told again what was released meanwhile: so does this.
            if pool.released:
                await self.release(pool, pool.released)
        finally:
            pool.released = None
        _, members, silent, live, notices = reply
        pool.heard(each.decode() for each in members)
        pool.routers = tuple(sorted(each.decode() for each in live))
        pool.board.heard(_notices(notices), told)
        for router in silent:
            await self.reclaim(pool, router.decode(), silence_s=self._silence_s)

    async def release(self, pool: PoolDirectory, ids: list[str]) -> None:
        """End reservations; unknown ones are ignored."""
        keys = [pool.keys.state, pool.keys.open(self._router)]
        await self._link.run("release", keys, [pool.policy.prefill_rate, *ids])

    async def reclaim(self, pool: PoolDirectory, router: str, *, silence_s: int) -> None:
        """Take back everything that a silent router holds; with a silence of -1 in any case."""
        keys = pool.keys
        taken: int = await self._link.run(
            "reclaim",
            [keys.state, keys.routers, keys.open(router)],
            [router, pool.policy.prefill_rate, silence_s],
        )
        if router != self._router:
            self._link.status.reclaimed += taken

    async def _compare(self, pool: PoolDirectory, *, whole: bool) -> list[Any]:
        now, rate, keys = time.monotonic(), pool.policy.prefill_rate, pool.keys
        args: list[Value] = [pool.generation, self._router, rate, self._silence_s]
        args += [self._grace_us, len(pool.held)]
        if whole:
            for key, each in pool.held.items():
                index = pool.index.get(each.replica)
                if index is not None:  # else it left the pool: nobody counts its requests any more
                    args += [key, int.from_bytes(index, "big"), each.tokens_left(now, rate)]
        names = [keys.state, keys.members, keys.uses, keys.routers, keys.incarnations, keys.board]
        reply: list[Any] = await self._link.run("sync", [*names, keys.open(self._router)], args)
        return reply

    async def _rejoin(self, pool: PoolDirectory) -> None:
        held = {each.replica for each in pool.held.values()}
        await pool.rejoin(self._link, {*pool.index, *held})


def _notices(flat: list[Any]) -> Iterator[tuple[str, str, float]]:
    """Topic, text and seconds left, from a list of all of them in a row."""
    for topic, text, left_s in zip(flat[::3], flat[1::3], flat[2::3], strict=True):
        yield topic.decode(errors="replace"), text.decode(errors="replace"), float(left_s)
