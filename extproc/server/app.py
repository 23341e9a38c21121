"""One process of the server: start, serve, drain, end."""

import asyncio
import errno
import multiprocessing
import os
import signal
import socket
from contextlib import AsyncExitStack
from pathlib import Path

import grpc
import structlog
from aiohttp import web
from envoy.service.ext_proc.v3 import external_processor_pb2_grpc as rpc
from grpc_health.v1 import health as grpc_health
from grpc_health.v1 import health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from extproc import __version__
from extproc.address import join_host_port, split_host_port
from extproc.affinity import open_store, redact
from extproc.pool_settings import pairs_of
from extproc.server import process_memory
from extproc.server.admin import Admin
from extproc.server.decision_log import DecisionLog
from extproc.server.health import SERVICE, Health
from extproc.server.metrics import Metrics
from extproc.server.paste_box import PasteBox
from extproc.server.router import Router, new_incarnation
from extproc.server.stats import Stats
from extproc.server.stream import Processor
from extproc.server.tls import TlsFiles, credentials
from extproc.server.tracing import open_tracer
from extproc.settings import Settings

_log = structlog.get_logger(__name__)

_METADATA_BYTES = 2**20
"""Of a pool's settings, which may list its replicas. Of itself gRPC refuses more than 8 KiB."""


class ServeError(Exception):
    """The process cannot serve. The message says what, where, and what to do."""


class App:
    """Serves by its settings until it is told to stop.

    Args:
        settings: What to do.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        incarnation = new_incarnation()
        self.store = open_store(
            settings.store,
            router=incarnation,
            deadline_s=settings.store_deadline_ms / 1000,
            memory_entries=settings.store_memory_entries,
        )
        stats = Stats(most_pools=settings.metric_pools, most_replicas=settings.metric_replicas)
        self._log = decision_log(settings, stats)
        self._tracer = open_tracer(os.environ, store=self.store.status().kind, router=incarnation)
        self.router = Router(
            self.store,
            window=settings.inspect_window,
            incarnation=incarnation,
            stats=stats,
            log=self._log,
            tracer=self._tracer,
            defaults=pairs_of(settings.pool_defaults),
            inspect_memory=settings.inspect_memory,
            max_pools=settings.max_pools,
        )
        self.metrics = Metrics(self.router.stats, self.store.status, self.router.discovery.statuses)
        self.health = Health()
        self.draining = False
        self.port = 0  # where Envoy connects, once it is known; 0 for a unix socket
        self.admin_port = 0
        self.started = asyncio.Event()
        self.drained = asyncio.Event()  # no request comes any more, or health says so
        self._stop = asyncio.Event()
        self._hurry = asyncio.Event()

    def stop(self) -> None:
        """Drain and end; told again, end at once."""
        (self._hurry if self._stop.is_set() else self._stop).set()

    async def run(self) -> None:
        """Serve until ``stop``.

        Raises:
            ServeError: An address cannot be served.
        """
        settings = self._settings
        async with AsyncExitStack() as stack:
            await self.store.start()
            stack.push_async_callback(self.store.close)
            if self._log is not None:
                self._start_log(self._log)
                stack.push_async_callback(asyncio.to_thread, self._log.close)
            if self._tracer is not None:
                stack.push_async_callback(asyncio.to_thread, self._tracer.close)
            stack.push_async_callback(self.router.settle)
            stack.push_async_callback(self.router.close)
            server = self._server()
            stack.push_async_callback(server.stop, None)
            await server.start()
            await self.health.serving()
            if settings.admin:
                stack.push_async_callback((await self._serve_admin()).cleanup)
            store = self.store.status()
            _log.info(
                "serving",
                version=__version__,
                listen=bound(settings.listen, self.port),
                admin=bound(settings.admin, self.admin_port),
                store=redact(settings.store),
                shared=store.shared,
            )
            self.started.set()
            await self._stop.wait()
            await self._drain(server)
        _log.info("stopped", open_streams=self.router.stats.open)

    def _start_log(self, log: DecisionLog) -> None:
        try:
            log.start()
        except OSError as error:
            raise ServeError(
                f"cannot write the decision log {self._settings.decision_log}: {_reason(error)}; "
                "choose another file with --decision-log"
            ) from None

    def _server(self) -> grpc.aio.Server:
        settings = self._settings
        server = grpc.aio.server(
            options=[
                ("grpc.max_receive_message_length", settings.max_message_size),
                ("grpc.max_send_message_length", -1),
                ("grpc.max_metadata_size", _METADATA_BYTES),
                ("grpc.so_reuseport", 0),  # a port that is taken is an error, not a share
                ("grpc.max_concurrent_streams", 1_000_000),
                ("grpc.http2.min_ping_interval_without_data_ms", 5000),
                ("grpc.http2.max_ping_strikes", 0),
            ],
        )
        processor = Processor(self.router, self.metrics, limit=settings.max_streams)
        rpc.add_ExternalProcessorServicer_to_server(processor, server)
        health_pb2_grpc.add_HealthServicer_to_server(self.health.servicer, server)
        reflection.enable_server_reflection(
            (SERVICE, grpc_health.SERVICE_NAME, reflection.SERVICE_NAME), server
        )
        check_free(settings.listen)
        try:
            if settings.tls_cert:
                port = server.add_secure_port(settings.listen, self._credentials())
            else:
                port = server.add_insecure_port(settings.listen)
        except RuntimeError:
            raise ServeError(
                f"cannot listen on {settings.listen}: choose a free address of this machine, "
                "or an existing folder for a unix socket, with --listen"
            ) from None
        self.port = 0 if settings.listen.startswith("unix:") else port
        return server

    def _credentials(self) -> grpc.ServerCredentials:
        settings = self._settings
        files = TlsFiles(settings.tls_cert, settings.tls_key, settings.tls_client_ca)
        try:
            return credentials(files)
        except OSError as error:
            reason = f"{error.filename}: {_reason(error)}"
        except ValueError as error:
            reason = str(error)
        raise ServeError(f"cannot use TLS: {reason}; see --tls-cert, --tls-key, --tls-client-ca")

    async def _serve_admin(self) -> web.AppRunner:
        address = self._settings.admin
        host, port = split_host_port(address)
        admin = Admin(
            self.store,
            self.router.stats,
            self.metrics,
            draining=lambda: self.draining,
            sources=self.router.discovery.statuses,
            health=self.router.health,
            engines=self.router.engines,
            explain=PasteBox(self.router).answer,
        )
        runner = web.AppRunner(admin.app(), access_log=None)
        await runner.setup()
        try:
            await web.TCPSite(runner, host, port).start()
        except OSError as error:
            await runner.cleanup()
            raise ServeError(
                f"cannot serve the admin pages on {address}: {_reason(error)}; "
                "choose another address with --admin, or none with --admin ''"
            ) from None
        self.admin_port = runner.addresses[0][1]
        return runner

    async def _drain(self, server: grpc.aio.Server) -> None:
        settings = self._settings
        self.draining = True
        await self.health.draining()
        _log.info(
            "draining", open_streams=self.router.stats.open, deadline_s=settings.drain_deadline
        )
        hurry = asyncio.create_task(self._hurry.wait())
        if settings.drain_delay:
            self.drained.set()
            await asyncio.wait({hurry}, timeout=settings.drain_delay)
        stopped = asyncio.create_task(server.stop(settings.drain_deadline))
        await asyncio.sleep(0)
        self.drained.set()
        await asyncio.wait({hurry, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if not stopped.done():
            await server.stop(None)
        await stopped
        hurry.cancel()


def decision_log(settings: Settings, stats: Stats) -> DecisionLog | None:
    """The log that the settings name, not yet opened."""
    if not settings.decision_log:
        return None
    secret = settings.decision_log_key
    key = secret.get_secret_value() if secret is not None else ""
    return DecisionLog(Path(settings.decision_log), key, stats.log_lines)


def serve(settings: Settings) -> None:
    """Serve in this process until SIGTERM or SIGINT.

    Raises:
        ServeError: An address cannot be served.
    """

    async def main() -> None:
        app = App(settings)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, app.stop)
        parent = multiprocessing.parent_process()
        if parent is not None:  # a worker does not outlive its supervisor

            def orphaned() -> None:
                loop.remove_reader(parent.sentinel)
                app.stop()

            loop.add_reader(parent.sentinel, orphaned)
        await app.run()

    process_memory.settle()
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(main())


def new_event_loop() -> asyncio.AbstractEventLoop:
    """An event loop: uvloop's, which costs a sixth less for each request, where there is one."""
    try:
        import uvloop  # noqa: PLC0415  # not for every platform
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def bound(address: str, port: int) -> str:
    """An address with the port that was found for port 0."""
    if not port:
        return address
    return join_host_port(split_host_port(address)[0], port)


def check_free(listen: str) -> None:
    """Refuse what gRPC would take over or only complain about in its own words.

    Raises:
        ServeError: The address is in use or of nowhere.
    """
    if not listen.startswith("unix:"):
        host, port = split_host_port(listen)
        try:
            infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            family, kind, protocol, _, address = infos[0]
            with socket.socket(family, kind, protocol) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(address)
        except OSError as error:
            raise ServeError(
                f"cannot listen on {listen}: {_reason(error)}; choose another with --listen"
            ) from None
        return
    path = Path(listen.removeprefix("unix:"))
    if not path.parent.is_dir():
        raise ServeError(f"cannot listen on {listen}: the folder {path.parent} does not exist")
    if path.exists() and not path.is_socket():
        raise ServeError(f"cannot listen on {listen}: {path} is there and no socket")
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return
    raise ServeError(f"cannot listen on {listen}: another process serves there")


def _reason(error: OSError) -> str:
    # By its number: asyncio writes the address into the text once more.
    if error.errno is not None and error.errno in errno.errorcode:
        return os.strerror(error.errno).lower()
    return (error.strerror or str(error)).lower()
