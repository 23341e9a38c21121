"""The command ``simulate``."""

import os
import shlex
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from extproc.lab.replica.latency import DEFAULT_PROFILE, PROFILES
from extproc.lab.simulator import options
from extproc.lab.simulator.traces import ANSWER_TOKENS, TraceError
from extproc.lab.simulator.trial import (
    STRATEGIES,
    Setup,
    infinite_cache_hit_rate,
    workload,
)
from extproc.lab.simulator.workloads import WORKLOADS
from extproc.pool_settings import PREFIX, parse

if TYPE_CHECKING:
    from extproc.lab.simulator.findings import Findings

BOUND_REQUESTS = 200_000
"""Up to so many requests the bound of all hit rates is worked out too."""

PIPED_WIDTH = 120
"""Columns of the table where the output is no terminal."""

app = typer.Typer(no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Simulations."""


@app.command()
def simulate(
    *,
    source: options.Source,
    strategies: options.Strategies = "all",
    replicas: options.Replicas = 8,
    routers: options.Routers = 1,
    state: options.State = "shared",
    profile: options.ProfileName = DEFAULT_PROFILE,
    rate_scale: options.RateScale = 1.0,
    capacity: options.Capacity = 0,
    limit: options.Limit = 0,
    pool: options.Pool = "",
    output_tokens: options.OutputTokens = ANSWER_TOKENS,
    seed: options.Seed = 1,
    seeds: options.Seeds = 1,
    settings: options.Settings = None,
    jobs: options.Jobs = 0,
    json: options.Json = None,
    csv: options.Csv = None,
    charts: options.Charts = None,
    report: options.Report = None,
) -> None:
    """Compare routing policies on a trace or a workload, in virtual time."""
    setup = Setup(
        source=source,
        replicas=replicas,
        routers=routers,
        shared=state == "shared",
        profile=profile,
        rate_scale=rate_scale,
        cache_tokens=capacity,
        limit=limit,
        pool=pool,
        output_tokens=output_tokens,
        settings=_settings(settings or ()),
    )
    names = _strategies(strategies)
    _check(setup)
    try:
        findings = _simulate(setup, names, range(seed, seed + seeds), jobs)
    except (TraceError, OSError) as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from error
    _show(findings)
    _write(findings, json=json, csv=csv, charts=charts, report=report)


def _simulate(setup: Setup, names: Sequence[str], seeds: range, jobs: int) -> "Findings":
    # Imported when run: --help is quick, and a missing extra is told by name.
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import Progress  # noqa: PLC0415

    from extproc.lab.simulator.findings import Findings  # noqa: PLC0415
    from extproc.lab.simulator.study import study  # noqa: PLC0415

    sent = workload(setup, seeds[0])
    bound = infinite_cache_hit_rate(sent) if sent.requests <= BOUND_REQUESTS else None
    total = sent.requests * len(names) * len(seeds)
    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("requests", total=total)
        outcomes = study(
            setup,
            names,
            seeds,
            jobs=jobs or os.cpu_count() or 1,
            progress=lambda done: bar.update(task, completed=done),
        )
    command = shlex.join(["prefix-extproc", *sys.argv[1:]])
    return Findings(setup, sent.name, sent.requests, seeds, outcomes, bound, command)


def _show(findings: "Findings") -> None:
    from rich.console import Console  # noqa: PLC0415  # see _simulate

    from extproc.lab.simulator.results import table  # noqa: PLC0415

    console = Console()
    if not console.is_terminal:
        console.width = PIPED_WIDTH
    rows = [outcome.row for outcome in findings.outcomes]
    console.print(table(rows, title=findings.title, bound=findings.bound))


def _write(
    findings: "Findings",
    *,
    json: Path | None,
    csv: Path | None,
    charts: Path | None,
    report: Path | None,
) -> None:
    if json is not None:
        from extproc.lab.report import document, write_json  # noqa: PLC0415  # see _simulate

        rows = [outcome.row for outcome in findings.outcomes]
        write_json(json, document(findings.command, findings.seeds[0], rows))
    if csv is not None:
        from extproc.lab.simulator.findings import by_seed  # noqa: PLC0415  # see _simulate
        from extproc.lab.simulator.results import write_csv  # noqa: PLC0415

        write_csv(csv, by_seed(findings))
    if charts is not None or report is not None:
        from extproc.lab.simulator import charts as drawing  # noqa: PLC0415  # see _simulate
        from extproc.lab.simulator.page import write_page  # noqa: PLC0415

        drawn = drawing.charts(findings)
        if charts is not None:
            drawing.write_charts(charts, drawn)
        if report is not None:
            write_page(report, findings, drawn, datetime.now(UTC).date())


def _strategies(text: str) -> list[str]:
    if text == "all":
        return list(STRATEGIES)
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in STRATEGIES:
            raise typer.BadParameter(
                f"{name!r} is none of {', '.join(STRATEGIES)}", param_hint="--strategies"
            )
    if not names:
        raise typer.BadParameter("name at least one", param_hint="--strategies")
    return list(dict.fromkeys(names))


def _settings(pairs: Sequence[str]) -> dict[str, str]:
    settings = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals:
            raise typer.BadParameter(f"{pair!r} is not KEY=VALUE", param_hint="--set")
        settings[key.removeprefix(PREFIX)] = value
    parsed = parse([(PREFIX + key, value) for key, value in settings.items()])
    for error in parsed.errors:
        raise typer.BadParameter(f"{error.key}={error.value}: {error.cure}", param_hint="--set")
    return settings


def _check(setup: Setup) -> None:
    if setup.profile not in PROFILES:
        raise typer.BadParameter(
            f"{setup.profile!r} is none of {', '.join(PROFILES)}", param_hint="--profile"
        )
    if setup.source not in WORKLOADS and not Path(setup.source).is_file():
        raise typer.BadParameter(
            f"{setup.source!r} is neither a file nor one of {', '.join(WORKLOADS)}",
            param_hint="TRACE|WORKLOAD",
        )
