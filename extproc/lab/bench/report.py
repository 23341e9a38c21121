"""Our figures beside the published ones, and which targets they reach."""

from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from extproc.lab.bench.published import PUBLISHED, Verdict, by_lot, deviation, judge
from extproc.lab.bench.rows import BenchRow
from extproc.lab.bench.sagemaker import Result
from extproc.lab.report import document, write_json

JUDGED = ("prefix_aware", "kv_aware")

BUSY = 0.85
"""From this share of all processors' time on, waiting for a processor shows in the times."""


def present(
    results: Sequence[Result], console: Console, *, command: str, seed: int, path: Path | None
) -> None:
    """Print all tables, and write the rows and verdicts.

    Targets are changes against random routing: without it there are none.

    Args:
        results: One per experiment.
        console: Where to print.
        command: How the benchmark was called, for the rows.
        seed: Of the workloads.
        path: Where to write the rows, or None.
    """
    judged = []
    for result in results:
        console.print()
        console.print(table(result.title, result.rows))
        for note in notes(result.rows):
            console.print(note)
        base = next((row for row in result.rows if row.strategy == "random"), None)
        judged += [
            verdict
            for row in result.rows
            if base is not None and row.strategy in JUDGED
            for verdict in judge(row, base)
        ]
    if judged:
        console.print()
        console.print(verdicts(judged))
    if path is not None:
        rows = [row for result in results for row in result.rows]
        content = document(command, seed, rows)
        write_json(path, content | {"targets": [verdict.as_json() for verdict in judged]})
        console.print(f"Rows: {path}")


def table(title: str, rows: Sequence[BenchRow]) -> Table:
    """One experiment's rows side by side, with Amazon's figures at the right.

    Args:
        title: Stands above.
        rows: At least one; the first is the baseline that the others are compared with.
    """
    base = rows[0]
    published = PUBLISHED[base.experiment]
    result = Table(title=title, title_justify="left", title_style="")
    result.add_column("", overflow="fold")
    for row in rows:
        result.add_column(row.strategy, justify="right")
    result.add_column("Amazon", justify="right", style="dim")

    def line(name: str, cell: Callable[[BenchRow], str], key: str = "") -> None:
        result.add_row(name, *map(cell, rows), published.get(key, ""))

    def compared(name: str, key: str, text: Callable[[float], str]) -> None:
        def cell(row: BenchRow) -> str:
            value, first = getattr(row, key), getattr(base, key)
            change = f" {value / first - 1:+4.0%}" if row is not base and first else ""
            return text(value) + change

        line(name, cell, key)

    line("cached prompt tokens", lambda row: f"{row.hit_rate:.1%}", "hit_rate")
    compared("TTFT P50", "ttft_p50_s", _time)
    compared("TTFT P90", "ttft_p90_s", _time)
    compared("TTFT P99", "ttft_p99_s", _time)
    compared("TTFT mean", "ttft_mean_s", _time)
    compared("throughput", "requests_per_s", lambda value: f"{value:.1f}/s")
    line("load share", lambda row: f"{row.share_min * 100:.1f}-{row.share_max:.1%}", "shares")
    line("  farthest from even", lambda row: f"{deviation(row) * 100:.1f} points")
    line("decision, mean", lambda row: _fine(row.decision_mean_s), "decision_mean_s")
    line(
        "decision, P50 / P99",
        lambda row: f"{_fine(row.decision_p50_s)} / {_fine(row.decision_p99_s)}",
    )
    line("router CPU a request", lambda row: _fine(row.router_cpu_s))
    line("failed", lambda row: f"{row.failed} of {row.requests}")
    line("CPU used: benchmark", lambda row: f"{row.cpu_own:.0%}")
    line("CPU used: all", lambda row: f"{row.cpu_busy:.0%}")
    return result


def notes(rows: Sequence[BenchRow]) -> list[str]:
    """What a reader must know beside a table: bounds, the speed, and whether to trust it."""
    base = rows[0]
    lines = []
    lines.append(
        f"Medians of {base.rounds} rounds, replicas at {base.speed:g} x the model's speed, times "
        "in the model's time (decisions and CPU: this machine's)."
    )
    lines.append(
        f"No router can do better than: hits {base.infinite_hit_rate:.1%} (an infinite cache), "
        f"TTFT P50 {_time(base.floor_p50_s)}, P90 {_time(base.floor_p90_s)} (prefill of the rest, "
        "no queue, no proxy)."
    )
    replicas = base.replicas
    lines.append(
        f"Chance alone (one standard deviation of one replica's share of {replicas}): "
        f"{by_lot(replicas, base.requests) * 100:.1f} points where each of {base.requests:,} "
        f"requests is placed by lot, {by_lot(replicas, base.prompts) * 100:.1f} where each of "
        f"{base.prompts:,} equally frequent beginnings of prompts is."
    )
    busy = [row.strategy for row in rows if row.cpu_busy > BUSY]
    if busy:
        lines.append(
            f"Warning: all processors were over {BUSY:.0%} busy with {', '.join(busy)}: times hold "
            "waiting for a processor. Choose a lower --speed, or end what else runs here."
        )
    return lines


def verdicts(judged: Sequence[Verdict]) -> Table:
    """Which targets were reached, and which nobody can reach."""
    result = Table(title="Targets: the better end of Amazon's figures", title_justify="left")
    for name in ("experiment", "target", "strategy", "measured", "verdict"):
        result.add_column(name, overflow="fold")
    for verdict in judged:
        result.add_row(
            verdict.experiment, verdict.target, verdict.strategy, verdict.measured, _word(verdict)
        )
    return result


def _word(verdict: Verdict) -> str:
    word = "reached" if verdict.met else "missed"
    if verdict.limit and not verdict.met:
        return f"out of reach: {verdict.limit}"
    return f"{word} ({verdict.note})" if verdict.note else word


def _time(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 10 else f"{seconds:.1f} s"


def _fine(seconds: float) -> str:
    return f"{seconds * 1000:.2f} ms"
