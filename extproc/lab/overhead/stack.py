"""All ways through one Envoy to the same replicas, side by side."""

import asyncio
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from extproc.lab.envoy_config import ListenerConfig, bootstrap, to_json
from extproc.lab.overhead.peers import Peer
from extproc.lab.processes import Part, PortPool
from extproc.lab.stack import LOOPBACK, ROUTER_COMMAND, answers, envoy_part, valkey_part
from extproc.processing.events import BodyMode

ALONE, FLOOR, MEMORY, VALKEY = "no filter", "floor", "memory", "valkey"
EXT_PROC = (FLOOR, MEMORY, VALKEY)

_MODULE = "extproc.lab.overhead"


@dataclass(frozen=True, slots=True)
class Way:
    """One way through Envoy.

    Attributes:
        name: Of the variant.
        port: Of Envoy's listener on 127.0.0.1.
        router: Who decides; None where Envoy does alone.
        store: Where the decisions' state is, if in a process of its own.
    """

    name: str
    port: int
    router: Part | None = None
    store: Part | None = None


class OverheadStack:
    """Starts everything on free loopback ports, and stops it at the end.

    Attributes:
        envoy: The one Envoy, with a listener for each way.
        ways: By name, Envoy alone first.

    Args:
        peers: Routers of others to have beside ours.
        replicas: How many.
        mode: How bodies reach the routers.
        folder: Kept at the end; None takes a temporary folder, kept only after a failure.
        router_arguments: Added to our routers' command lines.
    """

    def __init__(
        self,
        *,
        peers: Sequence[Peer] = (),
        replicas: int = 4,
        mode: BodyMode = BodyMode.BUFFERED_PARTIAL,
        folder: Path | None = None,
        router_arguments: Sequence[str] = (),
    ) -> None:
        self._temporary = folder is None
        self.folder = folder or Path(tempfile.mkdtemp(prefix="prefix-extproc-"))
        self.folder.mkdir(parents=True, exist_ok=True)
        self._ports = PortPool()
        self._router_arguments = router_arguments
        self.replicas = [self._address() for _ in range(replicas)]
        self._echo = self._make_echo()
        valkey_port = self._ports.take()
        self._valkey = valkey_part(valkey_port, self.folder)
        self._addresses = {name: self._address() for name in EXT_PROC}
        routers = {
            FLOOR: self._make_floor(self._addresses[FLOOR]),
            MEMORY: self._make_ours(MEMORY, "memory://"),
            VALKEY: self._make_ours(VALKEY, f"redis://{LOOPBACK}:{valkey_port}/0"),
        }
        self._peers = {peer.name: self._address() for peer in peers}
        for peer in peers:
            routers[peer.name] = self._make_peer(peer, self._peers[peer.name])
        self.ways = {
            name: Way(
                name,
                self._ports.take(),
                routers.get(name),
                self._valkey if name == VALKEY else None,
            )
            for name in (ALONE, *routers)
        }
        self._admin_port = self._ports.take()
        self._config = self.folder / "envoy.json"
        self.envoy = envoy_part(self._config, self._admin_port, threads=1)
        self._listeners = {way.port: self._listener(way.name, mode) for way in self.ways.values()}
        self._routers = list(routers.values())

    @property
    def parts(self) -> list[Part]:
        """All processes."""
        return [self.envoy, *self._routers, self._valkey, self._echo]

    async def __aenter__(self) -> Self:
        """Start all parts.

        Raises:
            StackError: If one does not start.
        """
        for part in self.parts:
            part.log.unlink(missing_ok=True)
        try:
            await self._valkey.start()
            await asyncio.gather(self._echo.start(), asyncio.to_thread(self._configure))
            await asyncio.gather(*(router.start() for router in self._routers))
            await self.envoy.start()
        except BaseException:
            await self._stop()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop all parts.

        Raises:
            StackError: If one had died.
        """
        if error is not None:
            error.add_note("\n".join(part.tail() for part in self.parts))
        try:
            if error is None:
                for part in self.parts:
                    part.check()
        finally:
            await self._stop()
        if self._temporary and error is None:
            shutil.rmtree(self.folder, ignore_errors=True)

    async def _stop(self) -> None:
        await self.envoy.stop()
        await asyncio.gather(*(part.stop() for part in self.parts[1:]))

    def _address(self) -> str:
        return f"{LOOPBACK}:{self._ports.take()}"

    def _listener(self, name: str, mode: BodyMode) -> ListenerConfig:
        if name in EXT_PROC:
            return ListenerConfig(name, body_mode=mode, router=EXT_PROC.index(name))
        if name in self._peers:
            return ListenerConfig(name, filter=False, cluster=name)
        return ListenerConfig(name, filter=False)

    def _configure(self) -> None:
        config = bootstrap(
            self._listeners,
            admin_port=self._admin_port,
            routers=[self._addresses[name] for name in EXT_PROC],
            replicas=self.replicas,
            others=self._peers,
        )
        self._config.write_text(to_json(config))

    def _make_echo(self) -> Part:
        argv = [sys.executable, "-m", f"{_MODULE}.echo"]
        for address in self.replicas:
            argv += ["--listen", address]
        ready = answers(f"http://{self.replicas[-1]}/health")
        return Part("echo", argv, log=self.folder / "echo.log", ready=ready)

    def _make_floor(self, address: str) -> Part:
        argv = [sys.executable, "-m", f"{_MODULE}.floor", "--listen", address]
        for replica in self.replicas:
            argv += ["--replica", replica]
        log = self.folder / "floor.log"
        return Part(FLOOR, argv, log=log, ready=lambda: _listens(address))

    def _make_ours(self, name: str, store: str) -> Part:
        admin = self._address()
        argv = [sys.executable, *ROUTER_COMMAND, "--listen", self._addresses[name]]
        argv += ["--admin", admin, "--store", store, "--workers", "1", *self._router_arguments]
        log = self.folder / f"{name}.log"
        return Part(name, argv, log=log, ready=answers(f"http://{admin}/readyz"))

    def _make_peer(self, peer: Peer, address: str) -> Part:
        host, _, port = address.rpartition(":")
        replicas = [f"http://{replica}" for replica in self.replicas]
        argv = peer.command(host, int(port), self._ports.take(), replicas)
        log = self.folder / f"{peer.name}.log"
        return Part(peer.name, argv, log=log, ready=answers(f"http://{address}/readiness"))


async def _listens(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        _, writer = await asyncio.open_connection(host, int(port))
    except OSError:
        return False
    writer.close()
    return True
