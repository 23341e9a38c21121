"""Several processes side by side, each with its own address."""

import multiprocessing
import os
import secrets
import signal
import time
from multiprocessing.connection import wait
from multiprocessing.context import SpawnProcess
from types import FrameType

import structlog
from pydantic import SecretStr

from extproc.address import join_host_port, split_host_port
from extproc.affinity.connect import memory_routers
from extproc.server.app import ServeError, check_free, serve
from extproc.server.logging import configure
from extproc.settings import Settings

_log = structlog.get_logger(__name__)

_BACKOFF_S, _MAX_BACKOFF_S = 0.5, 30.0
_STEADY_S = 60.0
"""A worker that ran so long starts again with the first pause."""


def settings_of_worker(settings: Settings, number: int) -> Settings:
    """The settings of one worker: its own port or socket for Envoy, admin pages and decision log.

    Args:
        settings: Those of all.
        number: From 0; the first keeps the addresses as they are.
    """
    return settings.model_copy(
        update={
            "workers": 1,
            "listen": _shift(settings.listen, number),
            "admin": _shift(settings.admin, number),
            "decision_log": _of_worker(settings.decision_log, number),
        }
    )


def _shift(address: str, number: int) -> str:
    if not address or not number:
        return address
    if address.startswith("unix:"):
        return _of_worker(address, number)
    host, port = split_host_port(address)
    if not port:  # each finds a free one
        return address
    return join_host_port(host, port + number)


def _of_worker(path: str, number: int) -> str:
    return f"{path}.{number}" if path and number else path


def _work(settings: Settings, number: int) -> None:
    os.setpgrp()  # a terminal's Ctrl-C comes once, from the supervisor
    configure(settings.log_level, settings.log_format, worker=number)
    try:
        serve(settings)
    except ServeError as error:
        _log.error("worker cannot serve", error=str(error))
        raise SystemExit(1) from None


class _Worker:
    """One place in the row, and the process that fills it now."""

    def __init__(self, settings: Settings, number: int) -> None:
        self._settings = settings_of_worker(settings, number)
        check_free(self._settings.listen)
        self._number = number
        self._pause = _BACKOFF_S
        self._started = 0.0
        self.due = 0.0
        self.process: SpawnProcess | None = None

    def start(self) -> None:
        # Spawned, not forked: gRPC's threads do not survive a fork.
        context = multiprocessing.get_context("spawn")
        self.process = context.Process(target=_work, args=(self._settings, self._number))
        self.process.start()
        self._started = time.monotonic()
        _log.info("worker started", worker=self._number, pid=self.process.pid)

    def ended(self) -> None:
        """Take in that the process ended, and when to start the next."""
        assert self.process is not None
        now = time.monotonic()
        if now - self._started >= _STEADY_S:
            self._pause = _BACKOFF_S
        self.due = now + self._pause
        _log.error(
            "worker ended",
            worker=self._number,
            exit_code=self.process.exitcode,
            again_in_s=self._pause,
        )
        self._pause = min(self._pause * 2, _MAX_BACKOFF_S)
        self.process.close()
        self.process = None


class Supervisor:
    """Starts workers, starts those again that end by themselves, and passes signals on.

    Args:
        settings: Those of all workers.

    Raises:
        ServeError: A worker's address is taken.
    """

    def __init__(self, settings: Settings) -> None:
        routers = memory_routers(settings.store)
        self._apart = routers is not None
        if routers is not None:
            store = f"memory://separate?routers={routers * settings.workers}"
            settings = settings.model_copy(update={"store": store})
        if settings.decision_log and settings.decision_log_key is None:
            # One for all, so that their logs can be simulated together.
            key = SecretStr(secrets.token_hex())
            settings = settings.model_copy(update={"decision_log_key": key})
        self._workers = [_Worker(settings, number) for number in range(settings.workers)]
        self._stopping = False

    def run(self) -> int:
        """Supervise until a signal has ended every worker.

        Returns:
            The exit code: 0, or 1 if a worker had to be killed or failed while stopping.
        """
        if self._apart:
            _log.warning(
                "workers share nothing",
                cure="give them a Redis with --store redis://..., or run one worker",
            )
        read, write = os.pipe()
        os.set_blocking(write, False)
        signal.set_wakeup_fd(write)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._signal)
        while not self._stopping:
            self._start_due()
            self._wait(read)
        codes = []
        for worker in self._workers:
            if worker.process is not None:
                worker.process.join()
                codes.append(worker.process.exitcode)
        signal.set_wakeup_fd(-1)
        # By a signal: it was still starting when it was told to stop.
        return 1 if set(codes) - {0, -signal.SIGTERM, -signal.SIGINT} else 0

    def _start_due(self) -> None:
        now = time.monotonic()
        for worker in self._workers:
            if worker.process is None and worker.due <= now and not self._stopping:
                worker.start()

    def _wait(self, read: int) -> None:
        """Sleep until a signal, the end of a worker, or the next start."""
        sentinels = {w.process.sentinel: w for w in self._workers if w.process is not None}
        dues = [w.due for w in self._workers if w.process is None]
        pause = max(min(dues) - time.monotonic(), 0.0) if dues else None
        ready = wait([read, *sentinels], timeout=pause)
        if read in ready:
            os.read(read, 4096)
        for sentinel, worker in sentinels.items():
            if sentinel in ready and worker.process is not None and not self._stopping:
                worker.process.join()
                worker.ended()

    def _signal(self, number: int, _frame: FrameType | None) -> None:
        self._stopping = True
        for worker in self._workers:
            if worker.process is not None and worker.process.pid is not None:
                os.kill(worker.process.pid, number)
