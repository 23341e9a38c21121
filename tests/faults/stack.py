"""Three routers, a store behind a proxy for each of them, and four replicas that can misbehave."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Self

import aiohttp

from extproc.lab.envoy_config import ListenerConfig
from extproc.lab.processes import Part
from extproc.lab.stack import LOOPBACK, LocalStack, Router
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
    """

    def __init__(
        self,
        moody: Sequence[MoodyReplica],
        *,
        routers: int = 3,
        settings: Mapping[str, str] = SETTINGS,
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
            addresses=[replica.address for replica in moody],
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

    def _store_of(self, _number: int) -> str:
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

    async def pools(self) -> list[dict[str, dict[str, object]]]:
        """The replicas of the pool, by address, as each router tells."""
        pages = [await get_json(f"{router.admin}/pools") for router in self.routers]
        return [page.get(POOL, {}).get("replicas", {}) for page in pages]

    async def decisions(self) -> list[int]:
        """How many each router has made since it was started; 0 where it cannot be asked."""
        found = []
        for router in self.routers:
            with suppress(aiohttp.ClientError):
                page = await get_json(f"{router.admin}/pools")
                found.append(page.get(POOL, {}).get("decisions", 0))
                continue
            found.append(0)
        return found

    async def health(self, replica: MoodyReplica, *states: str) -> bool:
        """Whether all routers say one of these of a replica."""
        found = [page.get(replica.address, {}) for page in await self.pools()]
        return all(each.get("health") in states for each in found)

    async def shared(self, routers: Sequence[Router] | None = None) -> bool:
        """Whether routers share their state through the store."""
        return all([await readiness(each) == "ok" for each in routers or self.routers])

    async def alone(self, routers: Sequence[Router] | None = None) -> bool:
        """Whether routers go on without the store."""
        return all([await readiness(each) == "degraded" for each in routers or self.routers])

    async def spotless(self) -> bool:
        """Whether nothing is left of a fault: all is shared, and counts are 0."""
        return await self.shared() and await balanced(self)


@asynccontextmanager
async def replicas(count: int = 4) -> AsyncIterator[list[MoodyReplica]]:
    """Replicas that run, and are well."""
    made = [MoodyReplica() for _ in range(count)]
    async with AsyncExitStack() as running:
        for replica in made:
            await replica.start()
            running.push_async_callback(replica.kill)
        yield made
