"""What prefix-aware routing gains, in words for people who do not route."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from extproc.lab.simulator.results import Row

PREFIX_AWARE = ("kv_aware", "prefix_aware")
"""What is praised or blamed: the first that was simulated."""

BASELINES = {
    "least_outstanding_requests": "routing to the least busy",
    "random": "random routing",
    "round_robin": "routing in turn",
}
"""What it is compared with, and what that is in plain words."""

MOST_BASELINES = 2
ALIKE = 0.02
"""Changes below are none."""


@dataclass(frozen=True, slots=True)
class Change:
    """One number before and after.

    Attributes:
        name: What is measured.
        before: Of the baseline, with its unit.
        after: Of prefix-aware routing.
        change: From one to the other, with a sign.
        better: Whether it is one for the better; None where it is next to nothing.
    """

    name: str
    before: str
    after: str
    change: str
    better: bool | None


@dataclass(frozen=True, slots=True)
class Comparison:
    """Prefix-aware routing against one baseline.

    Attributes:
        baseline: Its name.
        meaning: What it does, in plain words.
        changes: Of mean, median and 90th percentile of the time to first token, and of hits.
    """

    baseline: str
    meaning: str
    changes: Sequence[Change]


@dataclass(frozen=True, slots=True)
class Headline:
    """The answer in short.

    Attributes:
        sentence: What is gained, or lost.
        comparisons: The numbers behind it; empty where nothing can be compared.
    """

    sentence: str
    comparisons: Sequence[Comparison]


def headline(rows: Sequence[Row]) -> Headline:
    """Compare prefix-aware routing with routing that does not look at prompts.

    Args:
        rows: One per policy, at least one.
    """
    by_name = {row.strategy: row for row in rows}
    ours = next((by_name[name] for name in PREFIX_AWARE if name in by_name), None)
    baselines = [by_name[name] for name in BASELINES if name in by_name][:MOST_BASELINES]
    if ours is None or not baselines:
        wanted = ", ".join(BASELINES) if ours is not None else " or ".join(PREFIX_AWARE)
        best = min(rows, key=lambda row: row.ttft_mean_s)
        return Headline(
            f"{best.strategy} has the shortest mean time to first token: "
            f"{duration(best.ttft_mean_s)}. To see what prefix-aware routing gains, simulate "
            f"{wanted} too.",
            (),
        )
    return Headline(
        f"Prefix-aware routing ({ours.strategy}) {_verdicts(ours, baselines)}. The replicas find "
        f"{_hits(ours, baselines)}.",
        [
            Comparison(base.strategy, BASELINES[base.strategy], _changes(ours, base))
            for base in baselines
        ],
    )


def duration(value: float) -> str:
    """A time with three digits, in ms below a second."""
    number, unit = (value * 1000, "ms") if value < 0.9995 else (value, "s")
    digits = 0 if number >= 99.95 else 1 if number >= 9.995 else 2
    return f"{number:.{digits}f} {unit}"


def _hits(ours: Row, baselines: Sequence[Row]) -> str:
    found = f"{ours.hit_rate:.0%}"
    before = list(dict.fromkeys(f"{base.hit_rate:.0%}" for base in baselines))
    instead = "either way" if before == [found] else f"instead of {' and '.join(before)}"
    return f"{found} of all prompt tokens in their caches {instead}"


def _verdicts(ours: Row, baselines: Sequence[Row]) -> str:
    """How the mean compares with each baseline; those that come out alike share a verb."""
    found: dict[str, list[str]] = {}
    for base in baselines:
        change = ours.ttft_mean_s / base.ttft_mean_s - 1
        spread = ours.ttft_mean_spread_s + base.ttft_mean_spread_s
        against = f"against {BASELINES[base.strategy]}"
        if abs(change) < ALIKE or abs(ours.ttft_mean_s - base.ttft_mean_s) <= spread:
            found.setdefault("makes no clear difference", []).append(against)
        else:
            verb = "shortens" if change < 0 else "lengthens"
            what = f"{verb} the mean wait for the first token"
            found.setdefault(what, []).append(f"by {abs(change):.0%} {against}")
    return ", and ".join(f"{verb} {' and '.join(each)}" for verb, each in found.items())


_TIMES: Sequence[tuple[str, Callable[[Row], float]]] = (
    ("first token, mean", lambda row: row.ttft_mean_s),
    ("first token, P50", lambda row: row.ttft_p50_s),
    ("first token, P90", lambda row: row.ttft_p90_s),
)


def _changes(ours: Row, base: Row) -> list[Change]:
    changes = []
    for name, read in _TIMES:
        before, after = read(base), read(ours)
        change = after / before - 1
        better = None if abs(change) < ALIKE else change < 0
        changes.append(Change(name, duration(before), duration(after), _percent(change), better))
    points = (ours.hit_rate - base.hit_rate) * 100
    changes.append(
        Change(
            "cache hits",
            f"{base.hit_rate:.1%}",
            f"{ours.hit_rate:.1%}",
            f"{points:+.1f} points".replace("-", "\N{MINUS SIGN}"),
            None if abs(points) < 100 * ALIKE else points > 0,
        )
    )
    return changes


def _percent(change: float) -> str:
    return f"{change:+.0%}".replace("-", "\N{MINUS SIGN}")
