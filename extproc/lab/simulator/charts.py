"""Three charts of a simulation: times to first token, hits over time, load over time."""

import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from extproc.lab.simulator import series
from extproc.lab.simulator.findings import Findings
from extproc.lab.simulator.headline import duration
from extproc.lab.simulator.references import PEERS
from extproc.lab.simulator.study import Outcome

INK = "#1f2328"
"""Colour of text and axes; in SVG it becomes that of the text around."""

MAX_LINES = 12
"""Replicas that have a line each; of more a band is drawn."""

WIDE = 200
"""From the shortest to the longest time: beyond, fewer of them are written at the axis."""

COLUMNS = 3
"""Panels side by side."""

_COLORS = {
    "kv_aware": "#2a7de1",
    "prefix_aware": "#2e9e5b",
    "least_outstanding_requests": "#e07b1f",
    "random": "#8a9099",
    "round_robin": "#a8763e",
    "oracle": INK,
}
_OTHERS = ("#8e5bd0", "#d0487e", "#16a3a3", "#b59a00", "#c0392b", "#6b7fd7")
_PEERS = {name: _OTHERS[number % len(_OTHERS)] for number, name in enumerate(PEERS)}
_STYLE: Any = {
    "font.family": "sans-serif",
    "font.size": 10,
    "text.color": INK,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": INK,
    "ytick.color": INK,
    "grid.color": INK,
    "grid.alpha": 0.15,
    "legend.frameon": False,
    # Text stays text: small, found by search, read aloud.
    "svg.fonttype": "none",
    "svg.hashsalt": "prefix-extproc",
}


@dataclass(frozen=True, slots=True)
class Chart:
    """A picture and its words.

    Attributes:
        name: Of a file, without its ending.
        title: What it shows.
        text: What there is to see, for those who do not see it.
        caption: How to read it.
        figure: The picture.
    """

    name: str
    title: str
    text: str
    caption: str
    figure: Figure

    def png(self) -> bytes:
        """The picture as a PNG."""
        file = io.BytesIO()
        with mpl.rc_context(_STYLE):
            self.figure.savefig(file, format="png", dpi=130)
        return file.getvalue()

    def svg(self) -> str:
        """The picture as an ``svg`` element: scalable, in the colour and font of what is around."""
        file = io.StringIO()
        with mpl.rc_context(_STYLE):
            self.figure.savefig(file, format="svg", transparent=True, metadata={"Date": None})
        text = file.getvalue()
        text = text[text.index("<svg") :].replace(INK, "currentColor")
        text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
        text = re.sub(r"font: ([\d.]+px) [^;\"]*", r"font-size: \1", text)
        # Several pictures on one page: what one defines, no other may use.
        return re.sub(r'(id="|href="#|url\(#)', rf"\1{self.name}-", text)


def charts(findings: Findings) -> list[Chart]:
    """All charts of a simulation."""
    with mpl.rc_context(_STYLE):
        return [_times(findings), _hits(findings), _loads(findings)]


def write_charts(folder: Path, drawn: Sequence[Chart]) -> None:
    """Write PNG files, making the folder as needed."""
    folder.mkdir(parents=True, exist_ok=True)
    for chart in drawn:
        (folder / f"{chart.name}.png").write_bytes(chart.png())


def _times(findings: Findings) -> Chart:
    figure, axes = _wide()
    for outcome, look in _looks(findings):
        seconds = series.times_to_first_token(outcome.runs)
        axes.plot(np.maximum(seconds, 1e-4), series.SHARES, label=outcome.row.strategy, **look)
    axes.set(
        xscale="log",
        xlabel="time to first token",
        ylabel="% of requests",
        ylim=(0, 101),
    )
    first, last = axes.get_xlim()
    steps = (1, 2, 5) if last / first < WIDE else (1, 3)
    axes.xaxis.set_major_locator(LogLocator(subs=steps))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _tick(value)))
    _legend(axes)
    halves = ", ".join(
        f"{outcome.row.strategy} {duration(outcome.row.ttft_p50_s)}" for outcome in findings.ranked
    )
    text = (
        "Cumulative distribution of the time to first token, one curve for each policy. "
        f"Half of the requests have it within: {halves}."
    )
    caption = (
        "How many of the requests had their first token within which time (logarithmic). The "
        "farther left a curve, the shorter the wait."
    )
    return Chart("ttft", "Time to first token", text, caption, figure)


def _hits(findings: Findings) -> Chart:
    figure, axes = _wide()
    bounds = _bounds(findings)
    middles, unit = _on_axis((bounds[:-1] + bounds[1:]) / 2)
    for outcome, look in _looks(findings):
        rates = series.hit_rates(outcome.runs, bounds) * 100
        known = np.isfinite(rates)
        axes.plot(middles[known], rates[known], label=outcome.row.strategy, **look)
    if findings.bound is not None:
        axes.axhline(findings.bound * 100, color=INK, linestyle=":", label="infinite cache, mean")
    axes.set(xlabel=f"time since the start, {unit}", ylabel="% of prompt tokens", ylim=(0, 103))
    _legend(axes)
    overall = ", ".join(
        f"{outcome.row.strategy} {outcome.row.hit_rate:.1%}" for outcome in findings.ranked
    )
    text = (
        "Share of prompt tokens that the replicas found in their KV caches, over time, one curve "
        f"for each policy. Over all: {overall}."
    )
    caption = (
        "Of the tokens of the prompts sent at a time, how many the replicas had in their caches. "
        "Caches are empty at the start."
    )
    return Chart("hit-rate", "KV cache hits over time", text, caption, figure)


def _loads(findings: Findings) -> Chart:
    count = len(findings.outcomes)
    columns = min(COLUMNS, count)
    rows = -(-count // columns)
    figure = Figure(figsize=(9, 0.6 + 2.0 * rows), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    bounds = _bounds(findings)
    middles, unit = _on_axis((bounds[:-1] + bounds[1:]) / 2)
    for panel, (outcome, look) in zip(grid.flat, _looks(findings), strict=False):
        loads = series.loads(outcome.runs[0], findings.setup.replicas, bounds)
        _load(panel, middles, loads, str(look["color"]))
        row = outcome.row
        panel.set_title(f"{row.strategy}\n{row.share_min:.1%} to {row.share_max:.1%} of requests")
    grid[0, 0].set_ylim(0, grid[0, 0].get_ylim()[1] * 1.03)
    for above, panel in zip(grid.flat[count - columns :], grid.flat[count:], strict=False):
        panel.set_axis_off()
        above.tick_params(labelbottom=True)
    figure.supxlabel(f"time since the start, {unit}", fontsize=10)
    figure.supylabel("requests in flight at a replica", fontsize=10)
    shares = ", ".join(
        f"{outcome.row.strategy} {outcome.row.share_min:.1%} to {outcome.row.share_max:.1%}"
        for outcome in findings.ranked
    )
    text = (
        "Requests in flight at each replica over time, one panel for each policy. Shares of all "
        f"requests, from the least to the most loaded replica: {shares}."
    )
    many = findings.setup.replicas > MAX_LINES
    drawn = (
        "Light: from the least to the most loaded replica; dark: the middle half of them"
        if many
        else "Coloured: a line for each replica"
    )
    seed = f" Seed {findings.seeds[0]}." if len(findings.seeds) > 1 else ""
    caption = (
        f"{drawn}; black or white: the mean. A narrow bundle is an even load, a climbing one a "
        f"queue that grows.{seed}"
    )
    return Chart("load", "Load of each replica over time", text, caption, figure)


def _load(panel: Axes, times: series.Floats, loads: series.Floats, color: str) -> None:
    if len(loads) <= MAX_LINES:
        panel.plot(times, loads.T, color=color, linewidth=0.8, alpha=0.6)
    else:
        panel.fill_between(times, loads.min(axis=0), loads.max(axis=0), color=color, alpha=0.25)
        low, high = np.quantile(loads, [0.25, 0.75], axis=0)
        panel.fill_between(times, low, high, color=color, alpha=0.45)
    panel.plot(times, loads.mean(axis=0), color=INK, linewidth=1.2)
    panel.grid(visible=True)


def _wide() -> tuple[Figure, Axes]:
    figure = Figure(figsize=(9, 4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    axes.grid(visible=True)
    return figure, axes


def _legend(axes: Axes) -> None:
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), fontsize=9, handlelength=1.6)


def _looks(findings: Findings) -> list[tuple[Outcome, dict[str, Any]]]:
    """Each outcome with the look of its line: ours are thick, others' thin, the oracle dashed."""
    looks: list[tuple[Outcome, dict[str, Any]]] = []
    for outcome in findings.ranked:
        name = outcome.row.strategy
        ours = name in _COLORS
        look: dict[str, Any] = {"linewidth": 2.0 if ours else 1.1, "zorder": 4 if ours else 3}
        look["color"] = _COLORS.get(name) or _PEERS[name]
        if name == "kv_aware":
            look["zorder"] = 5
        if name == "oracle":
            look |= {"linestyle": "--", "linewidth": 1.2}
        looks.append((outcome, look))
    return looks


def _bounds(findings: Findings) -> series.Floats:
    return series.buckets([records for outcome in findings.outcomes for records in outcome.runs])


def _on_axis(seconds: series.Floats) -> tuple[series.Floats, str]:
    for size, unit in ((7200, "h"), (600, "min")):
        if seconds[-1] > size:
            return seconds / {"h": 3600, "min": 60}[unit], unit
    return seconds, "s"


def _tick(value: float) -> str:
    return f"{value * 1000:g} ms" if value < 1 else f"{value:g} s"
