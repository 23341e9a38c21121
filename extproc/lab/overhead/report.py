"""What the benchmark of the overhead gave: a table, a CSV file, a chart, rows for scripts."""

import csv
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from rich.table import Table

from extproc.lab.overhead import accounts
from extproc.lab.overhead.measure import Measured
from extproc.lab.overhead.rows import OverheadRow, Spread
from extproc.lab.overhead.stack import ALONE
from extproc.lab.report import COLORS, machine, write_json

BUSY = 0.85
_COLORS = (*COLORS, "#c0504d")


def table(rows: Sequence[OverheadRow]) -> Table:
    """All rows, a section for each case: medians, and between brackets the least and the most."""
    result = Table(title="What a routing decision costs", title_justify="left", title_style="")
    for name in ("body", "prompts", "clients", "way"):
        result.add_column(name)
    for name in (
        "added P50 ms",
        "added P90",
        "added P99",
        "router CPU us",
        "x floor",
        "Envoy us",
        "store us",
        "req/s a core",
        "MB",
    ):
        result.add_column(name, justify="right")
    for case, group in groupby(rows, lambda row: row.case):
        result.add_section()
        for number, row in enumerate(group):
            names = [f"{case.size_kb} kB", case.prefix, str(case.clients)]
            result.add_row(*(names if not number else ["", "", ""]), row.way, *_figures(row))
    return result


def _figures(row: OverheadRow) -> list[str]:
    alone = row.way == ALONE
    added = (row.added_p50_ms, row.added_p90_ms, row.added_p99_ms)
    return [
        f"(P50 {row.p50_ms.median:.2f})" if alone else _both(added[0], ".2f"),
        *("" if alone else f"{each.median:.2f}" for each in added[1:]),
        "" if alone else _both(row.router_us, ".0f"),
        "" if alone else _both(row.to_floor, ".2f"),
        f"{row.envoy_us.median:.0f}",
        f"{row.store_us.median:.0f}" if row.store_us.median else "",
        f"{row.requests_per_core:,.0f}" if row.requests_per_core else "",
        "" if alone else f"{row.memory_mb.median:.0f}",
    ]


def _both(value: Spread, form: str) -> str:
    if value.low == value.high:
        return f"{value.median:{form}}"
    return f"{value.median:{form}} \\[{value.low:{form}}-{value.high:{form}}]"


def notes(rows: Sequence[OverheadRow], measured: Measured) -> list[str]:
    """What a reader must know beside the table."""
    lines = []
    lines.append(
        f"Medians of {rows[0].rounds} rounds, \\[least-most]; every case through every way in "
        "each round. Added: to Envoy alone in the same round. CPU: per request, by the kernel's "
        "account of each process."
    )
    lines.append(
        f"Processors: {accounts.processor() or 'not told'}; busy {measured.busy_share:.0%} of the "
        f"time, by the benchmark {measured.own_share:.0%}."
    )
    if measured.busy_share - measured.own_share > 1 - BUSY:
        lines.append(
            "Warning: other work ran here meanwhile. Times hold waiting for a processor, and "
            "CPU figures hold colder caches: compare ways, not days."
        )
    return lines


def as_document(
    command: str, seed: int, rows: Sequence[OverheadRow], measured: Measured
) -> dict[str, Any]:
    """The object for scripts."""
    shares = {"busy_share": measured.busy_share, "own_share": measured.own_share}
    return {
        "command": command,
        "machine": machine() | {"processor": accounts.processor()} | shares,
        "seed": seed,
        "rows": [row.as_json() for row in rows],
    }


def write_all(folder: Path, content: dict[str, Any], rows: Sequence[OverheadRow]) -> list[Path]:
    """Write ``overhead.json``, ``overhead.csv`` and ``overhead.png``.

    Args:
        folder: Made as needed.
        content: From ``as_document``.
        rows: At least one.

    Returns:
        What was written.
    """
    json_path, csv_path, chart_path = (
        folder / f"overhead.{ending}" for ending in ("json", "csv", "png")
    )
    write_json(json_path, content)
    with csv_path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(content["rows"][0]))
        writer.writeheader()
        writer.writerows(content["rows"])
    write_chart(chart_path, rows)
    return [json_path, csv_path, chart_path]


def write_chart(path: Path, rows: Sequence[OverheadRow]) -> None:
    """Draw each way's processor time and added median by case.

    Args:
        path: A PNG file.
        rows: At least one.
    """
    figure = Figure(figsize=(14, 8), layout="constrained")
    FigureCanvasAgg(figure)
    top, bottom = figure.subplots(2, 1, sharex=True)
    ways = [name for name in dict.fromkeys(row.way for row in rows) if name != ALONE]
    _bars(top, rows, ways, "router_us")
    _bars(bottom, rows, ways, "added_p50_ms")
    top.set(title="Processor time of who decides, per request", ylabel="us")
    bottom.set(title="Added to the median of Envoy alone", ylabel="ms")
    cases = list(dict.fromkeys(row.case for row in rows))
    bottom.set_xticks(
        range(len(cases)),
        [f"{case.size_kb} kB\n{case.prefix}\n{case.clients} at a time" for case in cases],
    )
    top.legend()
    figure.savefig(path, dpi=110)


def _bars(axes: Axes, rows: Sequence[OverheadRow], ways: Sequence[str], field: str) -> None:
    width = 0.8 / max(len(ways), 1)
    for index, way in enumerate(ways):
        spreads = [getattr(row, field) for row in rows if row.way == way]
        places = [case + (index - (len(ways) - 1) / 2) * width for case in range(len(spreads))]
        axes.bar(
            places,
            [spread.median for spread in spreads],
            width,
            yerr=[
                [spread.median - spread.low for spread in spreads],
                [spread.high - spread.median for spread in spreads],
            ],
            color=_COLORS[index % len(_COLORS)],
            error_kw={"linewidth": 0.8},
            label=way,
        )
    axes.set_yscale("symlog", linthresh=1)
    axes.grid(visible=True, axis="y", alpha=0.25)
