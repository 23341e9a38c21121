"""What the benchmark of the store gave: a table, a CSV file, a chart, rows for scripts."""

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from rich.table import Table

from extproc.lab.overhead import accounts
from extproc.lab.report import COLORS, machine, write_json
from extproc.lab.storage.measure import StoreRow

_FIGURES = ("reserve us", "both scripts us", "Valkey CPU us", "decisions/s a core", "router CPU us")
_VARIED = {"prompt_kb": "kB of prompt", "replicas": "replicas", "routers": "routers"}


def table(rows: Sequence[StoreRow]) -> Table:
    """A line for each case."""
    result = Table(title="What the store takes", title_justify="left", title_style="")
    for name in ("routers", "prompt", "replicas", "prompts"):
        result.add_column(name)
    for name in _FIGURES:
        result.add_column(name, justify="right")
    for row in rows:
        case = row.case
        result.add_row(
            str(case.routers),
            f"{case.prompt_kb} kB",
            str(case.replicas),
            case.prompts,
            f"{row.reserve_us:.0f}",
            f"{row.scripts_us:.0f}",
            f"{row.valkey_us:.0f}",
            f"{row.per_core:,.0f}",
            f"{row.router_us:.0f}",
        )
    return result


def as_document(command: str, seed: int, rows: Sequence[StoreRow]) -> dict[str, Any]:
    """The object for scripts."""
    return {
        "command": command,
        "machine": machine() | {"processor": accounts.processor()},
        "seed": seed,
        "rows": [row.as_json() for row in rows],
    }


def write_all(folder: Path, content: dict[str, Any], rows: Sequence[StoreRow]) -> list[Path]:
    """Write ``store.json``, ``store.csv`` and ``store.png``.

    Args:
        folder: Made as needed.
        content: From ``as_document``.
        rows: At least one.

    Returns:
        What was written.
    """
    json_path, csv_path, chart_path = (
        folder / f"store.{ending}" for ending in ("json", "csv", "png")
    )
    write_json(json_path, content)
    with csv_path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(content["rows"][0]))
        writer.writeheader()
        writer.writerows(content["rows"])
    write_chart(chart_path, rows)
    return [json_path, csv_path, chart_path]


def write_chart(path: Path, rows: Sequence[StoreRow]) -> None:
    """Draw how a decision's cost grows: one thing varies, the others stay at their first value.

    Args:
        path: A PNG file.
        rows: At least one.
    """
    figure = Figure(figsize=(13, 4), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(1, len(_VARIED), sharey=True)
    for axes, (name, title) in zip(panels, _VARIED.items(), strict=True):
        fixed = [each for each in _VARIED if each != name]
        shown = [
            row
            for row in rows
            if all(getattr(row.case, each) == getattr(rows[0].case, each) for each in fixed)
        ]
        for number, prompts in enumerate(dict.fromkeys(row.case.prompts for row in shown)):
            line = [row for row in shown if row.case.prompts == prompts]
            x = [getattr(row.case, name) for row in line]
            color = COLORS[number + 1]
            axes.plot(x, [row.valkey_us for row in line], "o-", color=color, label=prompts)
            axes.plot(x, [row.router_us for row in line], "s:", color=color)
        others = ", ".join(f"{getattr(rows[0].case, each)} {_VARIED[each]}" for each in fixed)
        axes.set(title=others, xlabel=title, xscale="log")
        axes.set_xticks(x, [str(each) for each in x])
        axes.minorticks_off()
        axes.grid(visible=True, alpha=0.25)
    panels[0].set_ylim(bottom=0)
    panels[0].set_ylabel("CPU us a decision; dotted: the router's")
    panels[0].legend(title="prompts")
    figure.savefig(path, dpi=110)
