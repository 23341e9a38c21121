"""Routers, Envoy, Valkey and replicas as containers on a network of their own."""

import asyncio
import json
from collections.abc import Iterable
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self, cast

from docker.errors import APIError
from testcontainers.core.container import DockerContainer
from testcontainers.core.network import Network

from tests.compose.files import FOLDER
from tests.containers.shell import image_of

ROUTERS, REPLICAS = 2, 3
POOL = "replicas"

_HARDENED = {"read_only": True, "cap_drop": ["ALL"], "user": "65532:65532"}
_ASK = """
import sys, urllib.error, urllib.request
try:
    print(urllib.request.urlopen(sys.argv[1], timeout=5).read().decode())
except urllib.error.HTTPError as error:
    print(error.read().decode())
"""


class ContainerStack:
    """The Envoy configuration of compose.yaml, with the names that it knows.

    Attributes:
        valkey: Docker's handle of a container; so are the others.
        routers: Two of them.
        replicas: Three, which answer at once.
        envoy: The only one with a port on this machine.
        entrance: URL of Envoy's listener.

    Args:
        image: The router's, and the simulated replicas'.
    """

    def __init__(self, image: str) -> None:
        self._image = image
        self._parts = ExitStack()
        self._aliases: dict[str, str] = {}

    def __enter__(self) -> Self:
        with ExitStack() as parts:
            self._network = parts.enter_context(Network())
            self._start_all(parts)
            self._parts = parts.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._parts.close()

    def _start_all(self, parts: ExitStack) -> None:
        def start(alias: str, image: str, command: Iterable[str], *program: str) -> Any:
            made = DockerContainer(image).with_network(self._network).with_network_aliases(alias)
            made.with_command(list(command)).with_tmpfs_mount("/tmp")
            made.with_kwargs(**_HARDENED, **({"entrypoint": program} if program else {}))
            if alias == "envoy":
                made.with_volume_mapping(FOLDER / "envoy.yaml", "/envoy.yaml")
                # Of loopback alone, and free: testcontainers passes it on as it is.
                made.ports = cast("Any", {8080: ("127.0.0.1", None)})
            container: Any = parts.enter_context(made).get_wrapped_container()
            container.reload()
            self._aliases[container.id] = alias
            return container

        bare = "--bind", "0.0.0.0", "--protected-mode", "no", "--save", "", "--dir", "/tmp"
        self.valkey = start("valkey", image_of("valkey"), bare, "valkey-server")
        serve = "serve", "--store", "redis://valkey:6379/0", "--store-deadline-ms", "100"
        self.routers = [start("router", self._image, serve) for _ in range(ROUTERS)]
        replica = "lab", "replica", "--listen", "0.0.0.0:8000", "--speed", "inf"
        self.replicas = [start("replicas", self._image, replica) for _ in range(REPLICAS)]
        envoy = "--config-path", "/envoy.yaml", "--concurrency", "1", "--log-level", "warning"
        self.envoy = start("envoy", image_of("envoy"), envoy, "envoy")
        self.entrance = f"http://127.0.0.1:{self.envoy.ports['8080/tcp'][0]['HostPort']}"

    def cut(self, container: Any) -> None:
        """Take a container from the network, as if its cable were pulled."""
        self._docker_network.disconnect(container)

    def join(self, container: Any) -> None:
        """Bring it back; its address may be another one."""
        self._docker_network.connect(container, aliases=[self._aliases[container.id]])

    @property
    def _docker_network(self) -> Any:
        return self.valkey.client.networks.get(self._network.id)

    async def decisions(self) -> list[int]:
        """How many each router has made since it was started; 0 where it cannot be asked."""
        return [page.get(POOL, {}).get("decisions", 0) for page in await self._pages("pools")]

    async def spotless(self) -> bool:
        """Whether nothing is left of a fault: all counts are 0."""
        pages = await self._pages("pools")
        return not any(
            each["in_flight"] or each["pending_tokens"]
            for page in pages
            for each in page.get(POOL, {}).get("replicas", {}).values()
        )

    async def serves(self) -> bool:
        """Whether all routers share their state, and hold every replica for well."""
        if [page.get("status") for page in await self._pages("readyz")] != ["ok"] * ROUTERS:
            return False
        known = [page.get(POOL, {}).get("replicas", {}) for page in await self._pages("pools")]
        return all(
            len(replicas) == REPLICAS
            and all(each["health"] in {"healthy", "warming"} for each in replicas.values())
            for replicas in known
        )

    async def _pages(self, path: str) -> list[dict[str, Any]]:
        """What each router's admin interface says; asked from within, whatever the network."""

        def ask(router: Any) -> dict[str, Any]:
            url = f"http://127.0.0.1:9003/{path}"
            try:
                status, output = router.exec_run(["python3", "-c", _ASK, url])
            except APIError:  # it is paused
                return {}
            return dict(json.loads(output)) if status == 0 else {}

        return await asyncio.gather(*(asyncio.to_thread(ask, each) for each in self.routers))
