"""Three routers, a store behind a proxy for each of them, and four replicas that can misbehave."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Self

import aiohttp

from extproc.lab.envoy_config import ListenerConfig
from extproc.lab.processes import Part
from extproc.lab.stack import LOOPBACK, LocalStack
from tests.envoy.books import balanced, readiness
from tests.envoy.conftest import get_json
from tests.faults.proxy import Proxy
from tests.moody import MoodyReplica

POOL = "drill"

SETTINGS = {
    "x-prefix-eject-time": "2s",
    "x-prefix-slow-start": "1s",
    "x-prefix-health-path": "/health",
    "x-prefix-health-interval": "1s",
}
"""Short times, so that a drill is short: what is shown does not hang on them."""


class FaultStack(LocalStack):
    """The shipped configuration, whose parts can all be broken.

    Attributes:
        moody: The replicas, which run already.
        proxies: Between each router and the store.
        admins: URLs of the routers' admin interfaces.

    Args:
        moody: See above.
        routers: How many.
        workers: Of each.
        settings: Of the pool.
        store: A store of the test's own, to which no proxies lead; None starts Valkey.
        router_arguments: Added to each router's command line.
    """

    def __init__(
        self,
        moody: Sequence[MoodyReplica],
        *,
        routers: int = 3,
        workers: int = 1,
        settings: Mapping[str, str] = SETTINGS,
        store: str | None = None,
        router_arguments: Sequence[str] = (),
    ) -> None:
        self.moody = moody
        self.proxies: list[Proxy] = []
        listener = ListenerConfig(
            POOL,
            metadata={"x-prefix-pool": POOL, **settings},
            whole_body=True,
            message_timeout_s=0.5,
            response_headers={"x-details": "%RESPONSE_CODE_DETAILS%"},
        )
        super().__init__(
            [listener],
            routers=routers,
            workers=workers,
            addresses=[replica.address for replica in moody],
            store=store,
            router_arguments=["--store-deadline-ms", "100", *router_arguments],
        )

    async def __aenter__(self) -> Self:
        for proxy in self.proxies:
            await proxy.start()
        return await super().__aenter__()

    async def stop(self) -> None:
        await super().stop()
        for proxy in self.proxies:
            await proxy.stop()

    def _store_of(self, number: int) -> str:
        if self.valkey is None:
            return super()._store_of(number)
        self.proxies.append(Proxy(self._ports.take(), self._valkey_port))
        return f"redis://{LOOPBACK}:{self.proxies[-1].port}/0"

    @property
    def store(self) -> Part:
        """Valkey."""
        assert self.valkey is not None
        return self.valkey

    @property
    def store_port(self) -> int:
        """Of Valkey itself, on this machine."""
        return self._valkey_port

    @property
    def entrance(self) -> str:
        """URL of the listener."""
        return self.url(POOL)

    @property
    def admins(self) -> list[str]:
        return [admin for router in self.routers for admin in router.admins]

    async def pools(self) -> list[dict[str, Any]]:
        """The pool as each router tells of it; empty where it cannot be asked."""
        found = []
        for admin in self.admins:
            try:
                page = await get_json(f"{admin}/pools")
            except aiohttp.ClientError:
                page = {}
            found.append(page.get(POOL, {}))
        return found

    async def decisions(self) -> list[int]:
        """How many each router has made since it was started; 0 where it cannot be asked."""
        return [page.get("decisions", 0) for page in await self.pools()]

    async def health(self, replica: MoodyReplica, *states: str) -> bool:
        """Whether all routers say one of these of a replica."""
        found = [page.get("replicas", {}).get(replica.address, {}) for page in await self.pools()]
        return all(each.get("health") in states for each in found)

    async def shared(self, admins: Sequence[str] = ()) -> bool:
        """Whether routers (by their admin URLs; all) share their state through the store."""
        return await self._all_are("ok", admins or self.admins)

    async def alone(self, admins: Sequence[str] = ()) -> bool:
        """Whether routers go on without the store."""
        return await self._all_are("degraded", admins or self.admins)

    async def _all_are(self, status: str, admins: Sequence[str]) -> bool:
        try:
            return {await readiness(admin) for admin in admins} == {status}
        except aiohttp.ClientError:
            return False

    async def spotless(self) -> bool:
        """Whether nothing is left of a fault: all counts are 0."""
        return await balanced(self)


@asynccontextmanager
async def replicas(count: int = 4) -> AsyncIterator[list[MoodyReplica]]:
    """Replicas that run, and are well."""
    made = [MoodyReplica() for _ in range(count)]
    async with AsyncExitStack() as running:
        for replica in made:
            await replica.start()
            running.push_async_callback(replica.kill)
        yield made
