"""The command ``bench``."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from extproc.lab.running import run_to_end

PIPED_WIDTH = 150
"""Columns of the tables where the output is no terminal."""

bench = typer.Typer(no_args_is_help=True, help="Benchmarks beside what others published.")


@bench.callback()
def _group() -> None:
    """Benchmarks beside what others published."""


@bench.command()
def sagemaker(
    *,
    strategies: Annotated[
        str, typer.Option(help="Comma-separated; compared with the first.")
    ] = "random,least_outstanding_requests,prefix_aware,kv_aware",
    experiments: Annotated[
        str, typer.Option(help="Some of these.")
    ] = "shared-prefixes,saturation,sharegpt-like",
    requests: Annotated[int, typer.Option(min=1, help="Per strategy and round.")] = 300,
    rounds: Annotated[int, typer.Option(min=1, help="Turns of each strategy.")] = 3,
    rate: Annotated[
        float, typer.Option(min=0.1, help="Requests per second with shared prefixes, at speed 1.")
    ] = 16.0,
    chat_rate: Annotated[
        float, typer.Option(min=0.1, help="Turns per second of the chats, at speed 1.")
    ] = 8.0,
    replicas: Annotated[int, typer.Option(min=1, help="Simulated replicas.")] = 7,
    routers: Annotated[int, typer.Option(min=1, help="Router processes.")] = 2,
    speed: Annotated[
        float, typer.Option(min=0.01, max=1000, help="Times faster than the latency model.")
    ] = 1.0,
    chat_speed: Annotated[
        float, typer.Option(min=0.01, max=1000, help="The same for the chats.")
    ] = 2.0,
    seed: Annotated[int, typer.Option(help="Of the workloads.")] = 1,
    json: Annotated[Path | None, typer.Option(help="Write the rows to this file.")] = None,
    logs: Annotated[Path | None, typer.Option(help="Keep all parts' logs in this folder.")] = None,
) -> None:
    """Amazon's experiment: 7 replicas, 8,000-token shared prefixes, then ShareGPT-like chats."""
    # Imported when run: --help is quick, and a missing extra is told by name.
    from rich.console import Console  # noqa: PLC0415

    from extproc.lab.bench.report import present  # noqa: PLC0415
    from extproc.lab.bench.sagemaker import (  # noqa: PLC0415
        EXPERIMENTS,
        STRATEGIES,
        SagemakerOptions,
        run_sagemaker,
    )
    from extproc.lab.experiment import ExperimentError  # noqa: PLC0415
    from extproc.lab.processes import StackError  # noqa: PLC0415

    options = SagemakerOptions(
        strategies=_some_of(STRATEGIES, strategies, "--strategies"),
        experiments=_some_of(EXPERIMENTS, experiments, "--experiments"),
        requests=requests,
        rounds=rounds,
        rate=rate,
        chat_rate=chat_rate,
        replicas=replicas,
        routers=routers,
        speed=speed,
        chat_speed=chat_speed,
        seed=seed,
        logs=logs,
    )
    console = Console()
    if not console.is_terminal:
        console.width = PIPED_WIDTH
    try:
        results = run_to_end(run_sagemaker(options, Console(stderr=True)))
    except (StackError, ExperimentError) as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from error
    present(
        results, console, command=" ".join(["prefix-extproc", *sys.argv[1:]]), seed=seed, path=json
    )


@bench.command()
def agreement(
    *,
    strategies: Annotated[str, typer.Option(help="Comma-separated.")] = "random,kv_aware",
    experiments: Annotated[
        str, typer.Option(help="Some of these.")
    ] = "shared-prefixes,sharegpt-like",
    requests: Annotated[int, typer.Option(min=1, help="Per strategy and round.")] = 300,
    rounds: Annotated[int, typer.Option(min=1, help="Turns of each strategy.")] = 1,
    speed: Annotated[
        float,
        typer.Option(
            min=0.01,
            max=1000,
            help="Times faster than the latency model. Slow replicas leave less to the machine.",
        ),
    ] = 0.25,
    chat_speed: Annotated[
        float, typer.Option(min=0.01, max=1000, help="The same for the chats.")
    ] = 0.5,
    seed: Annotated[int, typer.Option(help="Of the workloads.")] = 1,
    json: Annotated[Path | None, typer.Option(help="Write the rows to this file.")] = None,
) -> None:
    """The same requests through the real stack and through the simulator."""
    from rich.console import Console  # noqa: PLC0415

    from extproc.lab.bench import agreement as compared  # noqa: PLC0415
    from extproc.lab.bench.sagemaker import STRATEGIES, SagemakerOptions  # noqa: PLC0415
    from extproc.lab.experiment import ExperimentError  # noqa: PLC0415
    from extproc.lab.processes import StackError  # noqa: PLC0415

    options = SagemakerOptions(
        strategies=_some_of(STRATEGIES, strategies, "--strategies"),
        experiments=_some_of(compared.EXPERIMENTS, experiments, "--experiments"),
        requests=requests,
        rounds=rounds,
        speed=speed,
        chat_speed=chat_speed,
        seed=seed,
    )
    console = Console()
    if not console.is_terminal:
        console.width = PIPED_WIDTH
    try:
        rows = run_to_end(compared.run_agreement(options, Console(stderr=True)))
    except (StackError, ExperimentError) as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from error
    command = " ".join(["prefix-extproc", *sys.argv[1:]])
    compared.present(rows, console, command=command, seed=seed, path=json)


@bench.command()
def soak(
    *,
    minutes: Annotated[float, typer.Option(min=0.05, help="Of traffic.")] = 30.0,
    rate: Annotated[float, typer.Option(min=0.1, help="Requests per second.")] = 200.0,
    aborted: Annotated[
        float, typer.Option(min=0, max=1, help="Share of requests that clients give up.")
    ] = 0.1,
    every: Annotated[
        float,
        typer.Option(min=1, help="Seconds between restarts of a router; pools change oftener."),
    ] = 60.0,
    ttl: Annotated[int, typer.Option(min=1, help="Seconds that keys live in the store.")] = 60,
    seed: Annotated[int, typer.Option(help="Of everything drawn.")] = 1,
    png: Annotated[Path | None, typer.Option(help="Draw memory and keys over time.")] = None,
    json: Annotated[Path | None, typer.Option(help="Write samples and slopes here.")] = None,
) -> None:
    """Traffic with aborts, restarts and changing pools, for long: what grows?"""
    from rich.console import Console  # noqa: PLC0415

    from extproc.lab.processes import StackError  # noqa: PLC0415
    from extproc.lab.soak.report import present  # noqa: PLC0415
    from extproc.lab.soak.run import SoakOptions, run_soak  # noqa: PLC0415

    options = SoakOptions(
        minutes=minutes, rate=rate, aborted=aborted, every_s=every, ttl_s=ttl, seed=seed
    )
    try:
        soaked = run_to_end(run_soak(options, lambda line: typer.echo(line, err=True)))
    except StackError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from error
    command = " ".join(["prefix-extproc", *sys.argv[1:]])
    present(soaked, Console(), command=command, seed=seed, png=png, json=json)
    if soaked.failed or any(soaked.left.values()):
        raise typer.Exit(1)


def _some_of(known: Sequence[str], given: str, option: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in given.split(",")))
    for name in names:
        if name not in known:
            raise typer.BadParameter(f"{option}: {name!r} is none of {', '.join(known)}")
    return names
