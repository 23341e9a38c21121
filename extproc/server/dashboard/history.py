"""The last minutes, from counts that only grow: sampled, so that no request pays for it."""

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from time import monotonic
from typing import Any, NamedTuple

from extproc.server.durations import LONG
from extproc.server.stats import PoolStats, Stats

INTERVAL_S = 5.0
WINDOW_S = 600.0


class Counts(NamedTuple):
    """A pool's counts at one time, all since start."""

    decisions: int = 0
    total_tokens: int = 0
    matched_tokens: int = 0
    best_tokens: int = 0
    reasons: Mapping[str, int] = {}
    starts: Sequence[int] = ()
    ends: Sequence[int] = ()


_NONE = Counts(starts=(0,) * (len(LONG) + 1), ends=(0,) * (len(LONG) + 1))


class Sample(NamedTuple):
    """All pools at one time of the clock."""

    at_s: float
    pools: Mapping[str, Counts]


class History:
    """What happened in the last ``WINDOW_S``.

    Args:
        stats: The counts to sample.
        clock: Seconds, from any start.
    """

    def __init__(self, stats: Stats, clock: Callable[[], float] = monotonic) -> None:
        self._stats = stats
        self._clock = clock
        self._samples: deque[Sample] = deque(maxlen=int(WINDOW_S / INTERVAL_S) + 1)

    def sample(self) -> None:
        """Note the counts as they are; to be called every ``INTERVAL_S``."""
        self._samples.append(self._now())

    def recent(self, pool: str) -> dict[str, Any]:
        """A pool's last minutes, up to now."""
        samples = [*self._samples, self._now()]
        counts = [each.pools.get(pool, _NONE) for each in samples]
        first, last = counts[0], counts[-1]
        seconds = samples[-1].at_s - samples[0].at_s
        total = last.total_tokens - first.total_tokens
        if len(samples) > 2 and samples[-1].at_s - samples[-2].at_s < INTERVAL_S / 2:
            # A moment's rate says nothing: the newest point of the series is that of a longer time.
            del samples[-2], counts[-2]
        return {
            "seconds": round(seconds, 1),
            "decisions": last.decisions - first.decisions,
            "per_s": _per(last.decisions - first.decisions, seconds),
            "hit_rate": _share(last.matched_tokens - first.matched_tokens, total),
            "best_rate": _share(last.best_tokens - first.best_tokens, total),
            "reasons": dict(Counter(last.reasons) - Counter(first.reasons)),
            "start": _times(first.starts, last.starts),
            "whole": _times(first.ends, last.ends),
            "series": [
                {
                    "age_s": round(samples[-1].at_s - sample.at_s, 1),
                    "per_s": _per(b.decisions - a.decisions, sample.at_s - before.at_s),
                    "hit_rate": _share(
                        b.matched_tokens - a.matched_tokens, b.total_tokens - a.total_tokens
                    ),
                }
                for (before, sample), (a, b) in zip(
                    pairwise(samples), pairwise(counts), strict=True
                )
                if sample.at_s > before.at_s
            ],
        }

    def _now(self) -> Sample:
        pools = {name: _counts(stats) for name, stats in self._stats.pools.items()}
        return Sample(self._clock(), pools)


def quantile(bounds: Sequence[float], counts: Sequence[int], share: float) -> float | None:
    """About the value below which a share of all lies, from a histogram.

    Args:
        bounds: Upper bounds of the buckets, ascending; the last bucket has none.
        counts: How many are in each bucket.
        share: 0 to 1.

    Returns:
        A value within its bucket by linear interpolation, the last bound where it lies beyond
        that, or None where nothing was counted.
    """
    wanted, below, lower = share * sum(counts), 0, 0.0
    if not wanted:
        return None
    for bound, count in zip(bounds, counts, strict=False):
        if below + count >= wanted:
            return lower + (bound - lower) * (wanted - below) / count
        below, lower = below + count, bound
    return lower


def _times(first: Sequence[int], last: Sequence[int]) -> dict[str, Any]:
    counts = [b - a for a, b in zip(first, last, strict=True)]
    found = {name: quantile(LONG, counts, share) for name, share in (("p50", 0.5), ("p90", 0.9))}
    return {
        "count": sum(counts),
        **{
            f"{name}_ms": None if value is None else round(value * 1000)
            for name, value in found.items()
        },
    }


def _counts(stats: PoolStats) -> Counts:
    return Counts(
        stats.reasons.total(),
        stats.total_tokens,
        stats.matched_tokens,
        stats.best_tokens,
        {reason.value: count for reason, count in stats.reasons.items()},
        tuple(stats.start_seconds.counts),
        tuple(stats.response_seconds.counts),
    )


def _share(part: int, whole: int) -> float | None:
    return round(part / whole, 4) if whole else None


def _per(count: int, seconds: float) -> float:
    return round(count / seconds, 2) if seconds > 0 else 0.0
