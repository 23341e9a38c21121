"""The Lua scripts that make each step of the Redis store atomic."""

import hashlib
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from redis.exceptions import ConnectionError as LostConnectionError
from redis.exceptions import NoScriptError

Value = bytes | str | int | float

NAMES = ("reserve", "release", "withdraw", "join", "leave", "restarted", "sync", "reclaim", "post")


class Scripts:
    """Runs scripts by their digest, and sends the text when the server does not know it.

    Args:
        client: A ``redis.asyncio`` client of any topology.
        clock: Lua source that replaces the server's clock; for tests that turn time.
    """

    def __init__(self, client: Any, *, clock: str = "") -> None:
        self._client = client
        folder = files("extproc.affinity") / "lua"
        prelude = (folder / "prelude.lua").read_text() + clock
        self._texts = {name: f"{prelude}\n{(folder / f'{name}.lua').read_text()}" for name in NAMES}
        self._digests = {
            name: hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()
            for name, text in self._texts.items()
        }

    async def load(self) -> None:
        """Send all texts ahead of their first use.

        Raises:
            redis.exceptions.RedisError: The server refused them or cannot be reached.
        """
        for text in self._texts.values():
            await self._client.script_load(text)

    async def run(self, name: str, keys: Sequence[bytes], args: Sequence[Value]) -> Any:
        """Run one script. On a lost connection it is run again: all scripts may be repeated.

        Raises:
            redis.exceptions.RedisError: The server refused it or cannot be reached.
        """
        try:
            return await self._run(name, keys, args)
        except LostConnectionError:
            # A server that went away leaves every idle connection dead, so drop them all.
            pool = getattr(self._client, "connection_pool", None)
            if pool is not None:
                await pool.disconnect(inuse_connections=False)
            return await self._run(name, keys, args)

    async def _run(self, name: str, keys: Sequence[bytes], args: Sequence[Value]) -> Any:
        try:
            return await self._client.evalsha(self._digests[name], len(keys), *keys, *args)
        except NoScriptError:
            return await self._client.eval(self._texts[name], len(keys), *keys, *args)
