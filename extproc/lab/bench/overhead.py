"""What routing itself costs, by the routers' own metrics, and how busy the machine was."""

import asyncio
import math
import os
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

DECISION = "prefix_extproc_decision_seconds"


@dataclass(frozen=True, slots=True)
class RouterCost:
    """What routers spent, added up over all of them.

    Attributes:
        decisions: Decisions taken.
        seconds: Time of all decisions together, waiting for the store included.
        buckets: Decisions that took at most so many seconds, by that bound.
        cpu_s: Processor time of the routers, for everything that they do.
    """

    decisions: float = 0.0
    seconds: float = 0.0
    buckets: Mapping[float, float] = field(default_factory=dict)
    cpu_s: float = 0.0

    def __add__(self, other: "RouterCost") -> "RouterCost":
        """Both together."""
        return self._combined(other, 1)

    def since(self, earlier: "RouterCost") -> "RouterCost":
        """What was spent since ``earlier``."""
        return self._combined(earlier, -1)

    def _combined(self, other: "RouterCost", sign: int) -> "RouterCost":
        bounds = self.buckets.keys() | other.buckets.keys()
        return RouterCost(
            self.decisions + sign * other.decisions,
            self.seconds + sign * other.seconds,
            {
                bound: self.buckets.get(bound, 0.0) + sign * other.buckets.get(bound, 0.0)
                for bound in sorted(bounds)
            },
            self.cpu_s + sign * other.cpu_s,
        )

    @property
    def mean_s(self) -> float:
        """Mean time of a decision; 0 without any."""
        return self.seconds / self.decisions if self.decisions else 0.0

    @property
    def cpu_per_decision_s(self) -> float:
        """Processor time per decision, for all that a router does; 0 without any."""
        return self.cpu_s / self.decisions if self.decisions else 0.0

    def quantile_s(self, quantile: float) -> float:
        """The time within which this share of decisions was taken, linear within a bucket."""
        rank = quantile * self.decisions
        lower = counted = 0.0
        for bound, count in self.buckets.items():
            if count >= rank and count > counted:
                if math.isinf(bound):
                    return lower
                return lower + (bound - lower) * (rank - counted) / (count - counted)
            lower, counted = bound, count
        return lower


def parse(text: str) -> RouterCost:
    """Read the Prometheus text of one router."""
    totals: dict[str, float] = defaultdict(float)
    buckets: dict[float, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name == f"{DECISION}_bucket":
                buckets[float(sample.labels["le"])] = sample.value
            else:
                totals[sample.name] += sample.value
    return RouterCost(
        totals[f"{DECISION}_count"],
        totals[f"{DECISION}_sum"],
        dict(sorted(buckets.items())),
        totals["process_cpu_seconds_total"],
    )


async def read(admins: Sequence[str]) -> RouterCost:
    """What all routers spent since they started.

    Args:
        admins: URLs of the routers' admin interfaces.

    Raises:
        aiohttp.ClientError: If one does not answer.
        TimeoutError: If one does not answer within ten seconds.
    """
    timeout = aiohttp.ClientTimeout(total=10)
    async with aiohttp.ClientSession(timeout=timeout, raise_for_status=True) as session:

        async def one(admin: str) -> RouterCost:
            async with session.get(f"{admin}/metrics") as response:
                return parse(await response.text())

        costs = await asyncio.gather(*map(one, admins))
    return sum(costs, RouterCost())


class ProcessorTime(NamedTuple):
    """Processor time since the machine started, in seconds.

    Attributes:
        own: Of the benchmark: the client and all parts of the stack.
        busy: In which processors worked, for whomever.
        total: Of all processors, idle or not.
    """

    own: float
    busy: float
    total: float

    @classmethod
    def now(cls, pids: Iterable[int], proc: Path = Path("/proc")) -> "ProcessorTime":
        """As Linux counts; zeros where it is not Linux.

        Args:
            pids: The stack's processes.
            proc: The process file system.
        """
        if not (proc / "stat").exists():
            return cls(0.0, 0.0, 0.0)
        hertz = os.sysconf("SC_CLK_TCK")
        ticks = [int(value) for value in (proc / "stat").read_text().split("\n", 1)[0].split()[1:9]]
        idle = ticks[3] + ticks[4]  # and waiting for disks
        own = sum(_ticks_of(proc / str(pid) / "stat") for pid in (os.getpid(), *pids))
        return cls(own / hertz, (sum(ticks) - idle) / hertz, sum(ticks) / hertz)

    def since(self, earlier: "ProcessorTime") -> "ProcessorTime":
        """What was spent since ``earlier``."""
        return ProcessorTime(*(now - then for now, then in zip(self, earlier, strict=True)))

    @property
    def own_share(self) -> float:
        """Share of all processors' time that the benchmark used; 0 where that is not known."""
        return self.own / self.total if self.total else 0.0

    @property
    def busy_share(self) -> float:
        """Share of all processors' time that was used, by whomever; 0 where that is not known."""
        return self.busy / self.total if self.total else 0.0


def _ticks_of(stat: Path) -> int:
    try:
        fields = stat.read_text().rpartition(")")[2].split()  # a name may hold spaces
    except FileNotFoundError:
        return 0
    return int(fields[11]) + int(fields[12])
