"""Local programs: started, watched, paused, killed and stopped, each by its own pid."""

import asyncio
import random
import signal
import socket
import subprocess
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

TAIL_LINES = 30
POLL_S = 0.02
STOP_GRACE_S = 5.0


class StackError(Exception):
    """A part of the local stack did not start, or died. The message has the end of its log."""


class Part:
    """One program of the stack, on ports that it keeps over restarts.

    Args:
        name: For messages and the log's name.
        argv: The command.
        log: Where its output goes; appended to at each start.
        ready: Tells whether it serves; called until it does.
        environment: The whole environment, or None for the caller's own.
    """

    def __init__(
        self,
        name: str,
        argv: Sequence[str],
        *,
        log: Path,
        ready: Callable[[], Awaitable[bool]],
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.log = log
        self._argv = list(argv)
        self._ready = ready
        self._environment = environment
        self._process: subprocess.Popen[bytes] | None = None
        self._meant_to_run = False

    @property
    def pid(self) -> int:
        """The process id.

        Raises:
            StackError: If it was never started.
        """
        if self._process is None:
            raise StackError(f"{self.name} was not started")
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether the process runs (or is paused)."""
        return self._process is not None and self._process.poll() is None

    async def start(self, deadline_s: float = 30.0) -> None:
        """Start it and wait until it serves.

        Raises:
            StackError: If it ends at once, or does not serve by the deadline.
        """
        if self.alive:
            raise StackError(f"{self.name} runs already")
        self._spawn()
        end = time.monotonic() + deadline_s
        while not await self._ready():
            self.check()
            if time.monotonic() > end:
                await self.kill()
                raise StackError(f"{self.name} did not serve in {deadline_s:g} s\n{self.tail()}")
            await asyncio.sleep(POLL_S)

    async def stop(self, grace_s: float = STOP_GRACE_S) -> None:
        """Ask it to end (SIGTERM), and kill it if it has not after ``grace_s``."""
        self._meant_to_run = False
        if self._process is None:
            return
        self._signal(signal.SIGCONT)
        self._signal(signal.SIGTERM)
        if not await self._ended(grace_s):
            await self.kill()

    async def kill(self) -> None:
        """End it at once (SIGKILL)."""
        self._meant_to_run = False
        self._signal(signal.SIGKILL)
        await self._ended(STOP_GRACE_S)

    async def restart(self, deadline_s: float = 30.0) -> None:
        """Stop it if it runs, and start it again on the same ports."""
        await self.stop()
        await self.start(deadline_s)

    def pause(self) -> None:
        """Freeze it (SIGSTOP): its connections stay open, and nobody answers."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on after ``pause``."""
        self._signal(signal.SIGCONT)

    def terminate(self) -> None:
        """Send SIGTERM, and do not wait."""
        self._meant_to_run = False
        self._signal(signal.SIGTERM)

    def check(self) -> None:
        """See that it runs if it is meant to.

        Raises:
            StackError: If it died.
        """
        if self._meant_to_run and not self.alive:
            code = self._process.returncode if self._process else None
            raise StackError(f"{self.name} ended with status {code}\n{self.tail()}")

    def tail(self, lines: int = TAIL_LINES) -> str:
        """The end of the log, with its path."""
        try:
            text = self.log.read_text(errors="replace")
        except FileNotFoundError:
            text = ""
        end = "\n".join(text.splitlines()[-lines:]) or "(empty)"
        return f"--- {self.name}: end of {self.log} ---\n{end}"

    def _spawn(self) -> None:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._environment,
                start_new_session=True,  # Ctrl-C is the stack's to pass on, in order
            )
        self._meant_to_run = True

    async def _ended(self, grace_s: float) -> bool:
        end = time.monotonic() + grace_s
        while self.alive:
            if time.monotonic() > end:
                return False
            await asyncio.sleep(POLL_S)
        return True

    def _signal(self, number: int) -> None:
        if self._process is not None and self.alive:
            self._process.send_signal(number)


class PortPool:
    """Hands out loopback ports that are free, each once.

    The ports lie below the range from which the kernel takes ports for outgoing connections, so no
    connection grabs one between its choice and its use, nor while a killed part is down.
    """

    def __init__(self) -> None:
        path = Path("/proc/sys/net/ipv4/ip_local_port_range")
        first_ephemeral = int(path.read_text().split()[0]) if path.exists() else 32768
        self._range = range(min(20_000, first_ephemeral // 2), first_ephemeral)
        self._given: set[int] = set()
        self._random = random.SystemRandom()

    def take(self, row: int = 1) -> int:
        """A free port: the first of so many free ones in a row.

        Raises:
            StackError: If none was found.
        """
        for _ in range(1000):
            port = self._random.choice(self._range)
            ports = range(port, port + row)
            if self._given.isdisjoint(ports) and all(map(_is_free, ports)):
                self._given.update(ports)
                return port
        raise StackError(f"no free port from {self._range.start} to {self._range.stop - 1}")


def find_binary(package: str, pattern: str) -> Path:
    """A program that a Python package carries.

    Args:
        package: The distribution's name.
        pattern: A glob for the program's path inside the distribution.

    Raises:
        StackError: If the package or the program in it is missing.
    """
    try:
        files = distribution(package).files or []
    except PackageNotFoundError:
        raise StackError(
            f"the package {package!r} is missing: pip install 'prefix-extproc[lab]'"
        ) from None
    for file in files:
        if file.match(pattern):
            return Path(str(file.locate()))
    raise StackError(f"the package {package!r} has no program {pattern!r} for this machine")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
