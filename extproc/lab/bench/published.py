"""What Amazon published of SageMaker's prefix-aware routing, and whether we reach it.

Targets are the better end of each published range. A target can be out of anyone's reach on a
workload: what ``rows.Floor`` says of it decides that, not the router that is being measured.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from extproc.lab.bench.rows import BenchRow

SHARED = "shared-prefixes"
SATURATION = "saturation"
CHATS = "sharegpt-like"

EVEN = 0.011
"""How far from even the farthest of Amazon's seven shares was: 15.4 % against a seventh."""

PUBLISHED: Mapping[str, Mapping[str, str]] = {
    SHARED: {
        "hit_rate": "25 -> 82 %",
        "ttft_p50_s": "-71 to -77 %",
        "ttft_p90_s": "-33 to -37 %",
        "shares": "13.3-15.4 %",
        "decision_mean_s": "1.3-1.9 ms",
    },
    SATURATION: {"requests_per_s": "+15 to +16 %"},
    CHATS: {
        "hit_rate": "30 -> 80 %",
        "ttft_p50_s": "-13 to -16 %",
        "ttft_p90_s": "-24 to -37 %",
        "decision_mean_s": "1.3-1.9 ms",
    },
}
"""By experiment and field of a row: Amazon's figures, against its random routing."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """One target, and what a strategy gave.

    Attributes:
        experiment: In which.
        strategy: Which.
        target: What is wanted.
        measured: What was measured, as text.
        met: Whether that is enough.
        limit: Why the workload lets no router reach it; empty if it does.
        note: What else to know before believing it, or empty.
    """

    experiment: str
    strategy: str
    target: str
    measured: str
    met: bool
    limit: str = ""
    note: str = ""

    def as_json(self) -> dict[str, Any]:
        """The verdict with its field names as keys."""
        return asdict(self)


def judge(row: BenchRow, base: BenchRow) -> list[Verdict]:
    """All targets of a row's experiment.

    Args:
        row: Of the strategy to judge.
        base: Of random routing in the same experiment.
    """
    return [check(row, base) for check in _CHECKS[row.experiment]]


_Check = Callable[[BenchRow, BenchRow], Verdict]


def _hits_of(wanted: float) -> _Check:
    def check(row: BenchRow, _: BenchRow) -> Verdict:
        limit = ""
        if row.infinite_hit_rate < wanted:
            limit = f"an infinite cache gives {row.infinite_hit_rate:.1%}"
        measured = f"{row.hit_rate:.1%}"
        return _verdict(row, f"hits >= {wanted:.0%}", measured, row.hit_rate >= wanted, limit)

    return check


def _hits_near_infinite(row: BenchRow, _: BenchRow) -> Verdict:
    missing = row.infinite_hit_rate - row.hit_rate
    return _verdict(
        row, "hits within 1 point of the infinite cache's", f"{-missing:+.1%}", missing <= 0.01
    )


def _faster(field: str, floor_field: str, name: str, wanted: float) -> _Check:
    def check(row: BenchRow, base: BenchRow) -> Verdict:
        baseline = getattr(base, field)
        change = getattr(row, field) / baseline - 1
        possible = getattr(row, floor_field) / baseline - 1
        limit = ""
        if possible > wanted:
            limit = f"prefill alone, with no queue and endless caches, allows {possible:+.0%}"
        return _verdict(row, f"{name} {wanted:+.0%}", f"{change:+.0%}", change <= wanted, limit)

    return check


def _throughput(row: BenchRow, base: BenchRow) -> Verdict:
    change = row.requests_per_s / base.requests_per_s - 1
    return _verdict(row, "throughput +16%", f"{change:+.0%}", change >= 0.16)


def _even(row: BenchRow, _: BenchRow) -> Verdict:
    points = deviation(row)
    chance = by_lot(row.replicas, row.requests)
    note = ""
    if chance > EVEN / 2:
        note = f"{row.requests:,} requests placed by lot stray {chance * 100:.1f}: send more"
    verdict = _verdict(
        row,
        f"every share within {EVEN * 100:.1f} points of even",
        f"{points * 100:.1f} points",
        points <= EVEN,
    )
    return replace(verdict, note=note)


def by_lot(replicas: int, draws: int) -> float:
    """One standard deviation of a replica's share when each draw picks any, all alike."""
    return math.sqrt((1 - 1 / replicas) / replicas / draws)


def deviation(row: BenchRow) -> float:
    """How far the farthest replica's share of the requests is from even."""
    return max(1 / row.replicas - row.share_min, row.share_max - 1 / row.replicas)


def _verdict(row: BenchRow, target: str, measured: str, met: bool, limit: str = "") -> Verdict:
    return Verdict(row.experiment, row.strategy, target, measured, met, limit)


_CHECKS: Mapping[str, Sequence[_Check]] = {
    SHARED: [
        _hits_of(0.82),
        _hits_near_infinite,
        _faster("ttft_p50_s", "floor_p50_s", "P50 TTFT", -0.77),
        _faster("ttft_p90_s", "floor_p90_s", "P90 TTFT", -0.37),
        _even,
    ],
    SATURATION: [_throughput],
    CHATS: [
        _hits_of(0.80),
        _faster("ttft_p50_s", "floor_p50_s", "P50 TTFT", -0.16),
        _faster("ttft_p90_s", "floor_p90_s", "P90 TTFT", -0.37),
    ],
}
