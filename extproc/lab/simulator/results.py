"""What simulations gave: rows for people and scripts."""

import csv
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table

from extproc.lab.rows import Measured, percentile
from extproc.lab.simulator.loop import Records
from extproc.lab.simulator.references import PEERS


@dataclass(frozen=True, slots=True, kw_only=True)
class Row(Measured):
    """One policy, averaged over seeds, or one of its runs; times in virtual seconds.

    ``requests`` are those of one seed, ``failed`` those of all.

    Attributes:
        ttft_mean_spread_s: Standard deviation of the mean time to first token over the seeds; 0
            for one seed.
        ttft_p99_spread_s: The same of the 99th percentile.
        latency_mean_s: Mean time to the last token.
        seeds: How many.
    """

    ttft_mean_spread_s: float
    ttft_p99_spread_s: float
    latency_mean_s: float
    seeds: int


def summarize(strategy: str, replicas: int, runs: Sequence[Records]) -> Row:
    """Average runs of one policy, one per seed, at least one."""
    measured = [_measure(records, replicas) for records in runs]

    def mean(name: str) -> float:
        return statistics.fmean(each[name] for each in measured)

    def spread(name: str) -> float:
        return statistics.stdev(each[name] for each in measured) if len(measured) > 1 else 0.0

    return Row(
        strategy=strategy,
        **{name: mean(name) for name in measured[0]},
        ttft_mean_spread_s=spread("ttft_mean_s"),
        ttft_p99_spread_s=spread("ttft_p99_s"),
        requests=round(statistics.fmean(len(records.sent_s) for records in runs)),
        failed=sum(ended < 0 for records in runs for ended in records.ended_s),
        seeds=len(runs),
    )


def _measure(records: Records, replicas: int) -> dict[str, float]:
    times = sorted(time for time in records.ttft_s if time >= 0)
    counts = Counter(records.replica)
    requests = len(records.sent_s)
    span = max(records.ended_s) - min(records.sent_s)
    return {
        "hit_rate": sum(records.cached_tokens) / sum(records.prompt_tokens),
        "ttft_p50_s": percentile(times, 50),
        "ttft_p90_s": percentile(times, 90),
        "ttft_p99_s": percentile(times, 99),
        "ttft_mean_s": statistics.fmean(times),
        "latency_mean_s": (sum(records.ended_s) - sum(records.sent_s)) / requests,
        "requests_per_s": requests / span if span else 0.0,
        "share_min": min(counts[replica] for replica in range(replicas)) / requests,
        "share_max": max(counts.values()) / requests,
    }


def table(rows: Sequence[Row], *, title: str, bound: float | None = None) -> Table:
    """One line per policy.

    Args:
        rows: At least one.
        title: Stands above.
        bound: Hit rate of an infinite cache, or None.
    """
    result = Table(
        title=title,
        title_justify="left",
        title_style="",
        box=box.SIMPLE_HEAD,
        padding=(0, 1),
        pad_edge=False,
    )
    result.add_column("policy", no_wrap=True)
    result.add_column("of", no_wrap=True)
    hits = "hits" if bound is None else f"hits\n(≤ {bound:.1%})"
    for name in (hits, "TTFT s\nmean", "\nP50", "\nP90", "\nP99"):
        result.add_column(name, justify="right", no_wrap=True)
    result.add_column("load of\na replica", justify="right", no_wrap=True)
    best = min(row.ttft_mean_s for row in rows if row.strategy != "oracle" or len(rows) == 1)
    for row in rows:
        spread = f" ±{row.ttft_mean_spread_s:.3f}" if row.seeds > 1 else ""
        result.add_row(
            row.strategy,
            PEERS.get(row.strategy, "sees all" if row.strategy == "oracle" else ""),
            f"{row.hit_rate:.1%}",
            f"{row.ttft_mean_s:.3f}{spread}",
            f"{row.ttft_p50_s:.3f}",
            f"{row.ttft_p90_s:.3f}",
            f"{row.ttft_p99_s:.3f}",
            f"{row.share_min:.1%}-{row.share_max:.1%}",
            style="bold" if row.ttft_mean_s == best else "",
        )
    return result


def write_csv(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Write rows, at least one, under the first one's keys; folders are made as needed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
