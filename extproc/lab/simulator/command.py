"""The command ``simulate``."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from extproc.lab.replica.latency import DEFAULT_PROFILE, PROFILES
from extproc.lab.simulator.traces import TraceError
from extproc.lab.simulator.trial import (
    STRATEGIES,
    Setup,
    infinite_cache_hit_rate,
    workload,
)
from extproc.lab.simulator.workloads import WORKLOADS
from extproc.pool_settings import PREFIX, parse

if TYPE_CHECKING:
    from extproc.lab.simulator.study import Outcome

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
    source: Annotated[
        str,
        typer.Argument(
            metavar="TRACE|WORKLOAD",
            help="A JSONL file (Mooncake's format, or a log of timestamp, path and body), or one "
            f"of {', '.join(WORKLOADS)}.",
        ),
    ],
    strategies: Annotated[
        str, typer.Option(help=f"Some of {','.join(STRATEGIES)}; or all.")
    ] = "all",
    replicas: Annotated[int, typer.Option(min=1, help="Model servers.")] = 8,
    routers: Annotated[int, typer.Option(min=1, help="Routers.")] = 1,
    state: Annotated[
        Literal["shared", "separate"],
        typer.Option(help="Whether routers share what they know, as with Redis."),
    ] = "shared",
    profile: Annotated[
        str, typer.Option(help=f"Model and machine: {', '.join(PROFILES)}.")
    ] = DEFAULT_PROFILE,
    rate_scale: Annotated[
        float, typer.Option(min=0.001, help="How many times faster to send.")
    ] = 1.0,
    capacity: Annotated[
        int, typer.Option(min=0, help="Tokens in each cache; 0: the profile's.")
    ] = 0,
    limit: Annotated[int, typer.Option(min=0, help="Requests at most; 0: all.")] = 0,
    seed: Annotated[int, typer.Option(help="The first seed.")] = 1,
    seeds: Annotated[int, typer.Option(min=1, help="Seeds to average over.")] = 1,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="A pool's setting as KEY=VALUE, such as prefill-rate=20000."),
    ] = None,
    jobs: Annotated[int, typer.Option(min=0, help="Processes; 0: as many as processors.")] = 0,
    json: Annotated[Path | None, typer.Option(help="Write the rows to this file.")] = None,
    csv: Annotated[Path | None, typer.Option(help="Write the rows to this file.")] = None,
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
        settings=_settings(settings or ()),
    )
    names = _strategies(strategies)
    _check(setup)
    try:
        outcomes, title, bound = _simulate(setup, names, range(seed, seed + seeds), jobs)
    except (TraceError, OSError) as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from error
    from rich.console import Console  # noqa: PLC0415  # see _simulate

    from extproc.lab.report import document, write_json  # noqa: PLC0415
    from extproc.lab.simulator.results import table, write_csv  # noqa: PLC0415

    rows = [outcome.row for outcome in outcomes]
    console = Console()
    if not console.is_terminal:
        console.width = PIPED_WIDTH
    console.print(table(rows, title=title, bound=bound))
    if json is not None:
        command = " ".join(["prefix-extproc", *sys.argv[1:]])
        write_json(json, document(command, seed, rows))
    if csv is not None:
        write_csv(csv, rows)


def _simulate(
    setup: Setup, names: Sequence[str], seeds: range, jobs: int
) -> "tuple[list[Outcome], str, float | None]":
    # Imported when run: --help is quick, and a missing extra is told by name.
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import Progress  # noqa: PLC0415

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
    return outcomes, _title(setup, sent.name, len(seeds)), bound


def _title(setup: Setup, name: str, seeds: int) -> str:
    state = "shared" if setup.shared else "separate"
    routers = "1 router" if setup.routers == 1 else f"{setup.routers} routers, {state} state"
    faster = "" if setup.rate_scale == 1 else f", {setup.rate_scale:g} times as fast"
    mean = "" if seeds == 1 else f", mean of {seeds} seeds"
    return f"{name}{faster}; {setup.replicas} replicas ({setup.profile}), {routers}{mean}"


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
