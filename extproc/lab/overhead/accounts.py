"""Processor time and memory of processes, as Linux counts them."""

import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

PROC = Path("/proc")
_CPUCLOCK_SCHED = 2


def cpu_s(pids: Iterable[int]) -> float:
    """Processor time of processes and of all that they started, in seconds.

    Threads that have ended are counted, to the nanosecond. Source: ``clock_getcpuclockid(3)``.

    Args:
        pids: Of processes that run.

    Raises:
        ProcessLookupError: If one does not.
    """
    return sum(_clock_s(each) for pid in pids for each in tree(pid))


def _clock_s(pid: int) -> float:
    try:
        return time.clock_gettime(~pid << 3 | _CPUCLOCK_SCHED)
    except OSError:
        raise ProcessLookupError(f"no process {pid} to measure") from None


def memory_bytes(pids: Iterable[int]) -> int:
    """Resident memory of processes and of all that they started, in bytes."""
    page = os.sysconf("SC_PAGE_SIZE")
    return sum(
        int((PROC / str(each) / "statm").read_text().split()[1]) * page
        for pid in pids
        for each in tree(pid)
    )


def tree(pid: int) -> Iterator[int]:
    """A process and all that it started, as far as they run."""
    yield pid
    for children in (PROC / str(pid) / "task").glob("*/children"):
        for child in children.read_text().split():
            yield from tree(int(child))


def processor() -> str:
    """The processors' model, or an empty string where Linux does not tell it."""
    info = PROC / "cpuinfo"
    if not info.exists():
        return ""
    names = [line for line in info.read_text().splitlines() if line.startswith("model name")]
    return names[0].partition(":")[2].strip() if names else ""
