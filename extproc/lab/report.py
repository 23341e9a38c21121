"""What an experiment gave: a table, a chart, and rows for scripts."""

import json
import os
import platform
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from rich.table import Table

from extproc.lab.experiment import Outcome
from extproc.lab.rows import Measured

COLORS = ("#9aa0a6", "#e8963e", "#2a7de1", "#3c9d5d", "#8e5bd0")


def table(rows: Sequence[Measured], *, title: str, bound: float | None = None) -> Table:
    """All rows side by side; the first is the baseline that the others are compared with.

    Args:
        rows: At least one.
        title: Stands above.
        bound: Hit rate of an infinite cache, or None.
    """
    base = rows[0]
    result = Table(title=title, title_justify="left", title_style="")
    result.add_column("")
    for row in rows:
        result.add_column(row.strategy, justify="right")

    def line(name: str, cell: Callable[[Measured], str]) -> None:
        result.add_row(name, *(cell(row) for row in rows))

    def measured(name: str, field: str, text: Callable[[float], str]) -> None:
        first = getattr(base, field)
        line(name, lambda row: text(getattr(row, field)) + _change(getattr(row, field), first))

    line("KV cache hit rate", lambda row: f"{row.hit_rate:.1%}")
    if bound:
        line("  of an infinite cache's", lambda row: f"{row.hit_rate / bound:.0%}")
    measured("P50 TTFT", "ttft_p50_s", _time)
    measured("P90 TTFT", "ttft_p90_s", _time)
    measured("throughput", "requests_per_s", lambda value: f"{value:.1f}/s")
    line("least loaded replica", lambda row: f"{row.share_min:.1%}")
    line("most loaded replica", lambda row: f"{row.share_max:.1%}")
    line("failed requests", lambda row: f"{row.failed} of {row.requests}")
    return result


def document(command: str, seed: int, rows: Sequence[Measured]) -> dict[str, Any]:
    """The object that ``--json`` writes."""
    return {
        "command": command,
        "machine": machine(),
        "seed": seed,
        "rows": [row.as_json() for row in rows],
    }


def machine() -> dict[str, Any]:
    """What the numbers were made on; nothing that names the machine or its owner."""
    return {
        "cpus": len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count(),
        "system": platform.system(),
        "architecture": platform.machine(),
        "python": platform.python_version(),
    }


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write an object for scripts; folders are made as needed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=2) + "\n")


def write_chart(
    path: Path, outcomes: Sequence[Outcome], *, title: str, bound: float | None = None
) -> None:
    """Draw hit rates, the distribution of times to first token, and each replica's load.

    Args:
        path: A PNG file; folders are made as needed.
        outcomes: At least one.
        title: Stands above.
        bound: Hit rate of an infinite cache, or None.
    """
    figure = Figure(figsize=(13, 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    hits, times, load = figure.subplots(1, 3)
    names = [outcome.row.strategy for outcome in outcomes]
    colors = [COLORS[index % len(COLORS)] for index in range(len(outcomes))]

    bars = hits.bar(names, [outcome.row.hit_rate * 100 for outcome in outcomes], color=colors)
    hits.bar_label(bars, fmt="%.0f %%", label_type="center")
    if bound is not None:
        hits.axhline(bound * 100, color="black", linestyle="--", linewidth=1)
        hits.text(-0.45, bound * 100 + 1.5, "infinite cache", fontsize=8)
    hits.set(title="KV cache hit rate", ylabel="% of prompt tokens", ylim=(0, 108))

    for outcome, color in zip(outcomes, colors, strict=True):
        values = sorted(record.ttft_s * 1000 for record in outcome.records if record.ok)
        share = [(index + 1) / len(values) * 100 for index in range(len(values))]
        times.plot(values, share, color=color, label=outcome.row.strategy, linewidth=2)
    times.set(
        title="Time to first token",
        xlabel="ms",
        ylabel="% of requests",
        xscale="log",
        ylim=(0, 101),
    )
    times.grid(visible=True, which="both", alpha=0.25)
    times.legend(loc="lower right")

    width = 0.8 / len(outcomes)
    for index, (outcome, color) in enumerate(zip(outcomes, colors, strict=True)):
        counts = [counter.requests for counter in outcome.counters.values()]
        places = [place + index * width for place in range(len(counts))]
        load.bar(places, counts, width=width, color=color, label=outcome.row.strategy)
    load.set(title="Load", xlabel="replica", ylabel="requests")
    replicas = range(len(outcomes[0].counters))
    load.set_xticks([place + 0.4 - width / 2 for place in replicas], [str(n + 1) for n in replicas])

    figure.suptitle(title, fontsize=10)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)


def _time(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 10 else f"{seconds:.1f} s"


def _change(value: float, base: float) -> str:
    return f"  {value / base - 1:+4.0%}" if base and value != base else ""
