"""What a soak found: slopes, a picture, and rows for scripts."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from rich.console import Console

from extproc.lab.report import machine, write_json
from extproc.lab.soak.run import Sample, Soaked

WARM = 1 / 3
"""Share of a run after which slopes are taken: before, caches fill."""

MIB = 2**20


def slope(samples: Sequence[Sample], field: str) -> float:
    """How much a number grows in an hour, by least squares over the samples after warming up.

    Args:
        samples: In order of time.
        field: Of ``Sample``.

    Returns:
        In the field's unit per hour; 0 for fewer than two samples.
    """
    warm = _warm(samples)
    if len(warm) < 2:
        return 0.0
    times = [each.at_s / 3600 for each in warm]
    return float(np.polyfit(times, [getattr(each, field) for each in warm], 1)[0])


def _warm(samples: Sequence[Sample]) -> list[Sample]:
    start = samples[-1].at_s * WARM if samples else 0.0
    return [each for each in samples if each.at_s >= start]


def summary(soaked: Soaked) -> dict[str, Any]:
    """The run in numbers."""
    samples = soaked.samples
    warm = _warm(samples)
    grown = warm[-1].rss_bytes - warm[0].rss_bytes
    aborts = warm[-1].aborted - warm[0].aborted
    return {
        "requests": soaked.answered + soaked.aborted + soaked.failed.total(),
        "answered": soaked.answered,
        "aborted": soaked.aborted,
        "failed": soaked.failed.total(),
        "failures": dict(soaked.failed),
        "restarts": soaked.restarts,
        "reshapings": soaked.reshapings,
        "seconds": samples[-1].at_s,
        "rss_first_warm_mib": round(warm[0].rss_bytes / MIB, 1),
        "rss_last_mib": round(samples[-1].rss_bytes / MIB, 1),
        "rss_slope_mib_per_hour": round(slope(samples, "rss_bytes") / MIB, 2),
        "rss_bytes_per_abort": round(grown / aborts, 1) if aborts else 0.0,
        "keys_most": max(each.keys for each in samples),
        "keys_last": samples[-1].keys,
        "keys_slope_per_hour": round(slope(samples, "keys"), 1),
        "store_slope_mib_per_hour": round(slope(samples, "store_bytes") / MIB, 2),
        "left": soaked.left,
    }


def present(
    soaked: Soaked,
    console: Console,
    *,
    command: str,
    seed: int,
    png: Path | None,
    json: Path | None,
) -> None:
    """Print the numbers, and write the files that are asked for."""
    found = summary(soaked)
    for name, value in found.items():
        console.print(f"{name.replace('_', ' '):24} {value}")
    if png is not None:
        draw(png, soaked)
    if json is not None:
        samples = [asdict(each) for each in soaked.samples]
        write_json(
            json,
            {
                "command": command,
                "machine": machine(),
                "seed": seed,
                "rows": [found],
                "samples": samples,
            },
        )


def draw(path: Path, soaked: Soaked) -> None:
    """Draw memory and keys over time, with their slopes, as a PNG."""
    samples = soaked.samples
    minutes = [each.at_s / 60 for each in samples]
    figure = Figure(figsize=(12, 3.6), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(1, 3)
    kinds = (
        ("rss_bytes", "memory of a router, MiB", MIB),
        ("keys", "keys in the store", 1),
        ("store_bytes", "memory of the store, MiB", MIB),
    )
    for axes, (field, title, unit) in zip(panels, kinds, strict=True):
        values = [getattr(each, field) / unit for each in samples]
        axes.plot(minutes, values, color="#2a7de1", linewidth=1.5)
        per_hour = slope(samples, field) / unit
        middle = _warm(samples)
        mean = sum(getattr(each, field) for each in middle) / len(middle) / unit
        centre = sum(each.at_s for each in middle) / len(middle) / 60
        ends = [middle[0].at_s / 60, middle[-1].at_s / 60]
        line = [mean + per_hour * (at - centre) / 60 for at in ends]
        axes.plot(ends, line, color="#e8963e", linestyle="--", label=f"{per_hour:+.1f} per hour")
        axes.set(title=title, xlabel="minutes", ylim=(0, max(values) * 1.15 or 1))
        axes.grid(visible=True, alpha=0.25)
        axes.legend(loc="lower right")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
