"""Routers of others, to be measured beside ours where they are installed."""

import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

Arguments = Callable[[str, int, int, Sequence[str]], list[str]]


@dataclass(frozen=True, slots=True)
class Known:
    """A router that we know how to run.

    Attributes:
        name: Of its package and program.
        version: The one that was published figures for, and that make installs.
        first: Arguments before all others.
    """

    name: str
    version: str
    first: tuple[str, ...] = ()


KNOWN = (
    Known("sglang-router", "0.3.2", ("launch",)),
    Known("vllm-router", "0.1.17"),
)


@dataclass(frozen=True, slots=True)
class Peer:
    """A router of others that is installed here.

    Attributes:
        known: What it is.
        program: Its path.
    """

    known: Known
    program: Path

    @property
    def name(self) -> str:
        """Of its package, program and variant."""
        return self.known.name

    def command(
        self, host: str, port: int, metrics_port: int, replicas: Sequence[str]
    ) -> list[str]:
        """How to run it before replicas, by prefix cache awareness.

        Args:
            host: Where it listens.
            port: The same.
            metrics_port: Where it serves its metrics.
            replicas: URLs.
        """
        argv = [str(self.program), *self.known.first, "--host", host, "--port", str(port)]
        argv += ["--policy", "cache_aware", "--worker-urls", *replicas]
        argv += ["--prometheus-host", host, "--prometheus-port", str(metrics_port)]
        return [*argv, "--log-level", "error"]


def folder_of(known: Known) -> Path:
    """The virtual environment that ``make peers`` installs it into, in the working directory."""
    return Path(f".venv-{known.name}")


def find(known: Known) -> Peer | None:
    """A router where make installs it, beside this Python, or on PATH."""
    places = [folder_of(known) / "bin", Path(sys.executable).parent]
    for place in places:
        program = place / known.name
        if program.exists():
            return Peer(known, program.absolute())
    found = shutil.which(known.name)
    return Peer(known, Path(found)) if found else None
