"""Calls to the shared store: each with a deadline, each failure counted and named."""

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Any

from redis.exceptions import ConnectionError as LostConnectionError
from redis.exceptions import RedisError

from extproc.affinity.deadline import Deadline
from extproc.affinity.scripts import Scripts, Value
from extproc.affinity.store import StoreError, StoreStatus

BACKGROUND_DEADLINE_S = 2.0
"""For calls that no request waits for: a slow store should still get them."""

_CONNECTIONS = 8
"""Connections to open ahead: as many as a busy router uses at once."""


class Link:
    """A client of the shared store.

    Args:
        client: A ``redis.asyncio`` client of any topology.
        clock: Lua source that replaces the server's clock; for tests.

    Attributes:
        client: The client.
        status: What became of the calls.
    """

    def __init__(self, client: Any, *, clock: str = "") -> None:
        self.client = client
        self.status = StoreStatus("redis", detail="shared store answers")
        self._scripts = Scripts(client, clock=clock)

    async def run(self, script: str, keys: Sequence[bytes], args: Sequence[Value]) -> Any:
        """Run a script.

        Raises:
            StoreError: No answer in time, or an error for one.
        """
        return await self.guard(self._scripts.run(script, keys, args))

    async def warm(self) -> None:
        """See whether the store answers, and do now what the first requests would wait for.

        Raises:
            StoreError: The store does not answer.
        """
        await self.guard(self._scripts.load())
        # Each takes a connection of its own, and leaves it open.
        await self.guard(asyncio.gather(*(self.client.ping() for _ in range(_CONNECTIONS))))

    async def guard(self, call: Awaitable[Any], deadline_s: float = BACKGROUND_DEADLINE_S) -> Any:
        """Await a call for at most ``deadline_s``.

        Raises:
            StoreError: No answer in time, or an error for one.
        """
        try:
            async with Deadline(deadline_s):
                return await call
        except TimeoutError:
            self._count("timeout")
            raise StoreError(f"no answer within {deadline_s * 1000:.0f} ms") from None
        except (RedisError, OSError) as error:
            lost = isinstance(error, LostConnectionError | OSError)
            self._count("connection" if lost else "error")
            raise StoreError(f"{type(error).__name__}: {error}") from None

    def _count(self, kind: str) -> None:
        self.status.failures[kind] = self.status.failures.get(kind, 0) + 1
