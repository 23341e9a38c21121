"""The command ``bench overhead``."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from extproc.lab.running import run_to_end

PIPED_WIDTH = 170
"""Columns of the table where the output is no terminal."""


def overhead(
    *,
    rounds: Annotated[int, typer.Option(min=1, help="Turns of each way in each case.")] = 5,
    requests: Annotated[
        int, typer.Option(min=1, help="Per case, way and round where short; fewer of long ones.")
    ] = 600,
    sizes: Annotated[str, typer.Option(help="Sizes of bodies in kB.")] = "2,64,512",
    clients: Annotated[str, typer.Option(help="Requests under way at any time.")] = "1,32",
    prefixes: Annotated[str, typer.Option(help="Prompts: some of these.")] = "unique,repeated",
    peers: Annotated[
        bool, typer.Option("--peers", help="Other routers too, those that are installed.")
    ] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="Short: one round of few requests of 2 kB.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Of the prompts' text.")] = 1,
    output: Annotated[
        Path, typer.Option(help="Folder of the chart, the CSV file and the rows.")
    ] = Path("prefix-extproc-bench"),
    json: Annotated[Path | None, typer.Option(help="Write the rows to this file too.")] = None,
    logs: Annotated[Path | None, typer.Option(help="Keep all parts' logs in this folder.")] = None,
) -> None:
    """What a decision costs: no filter, a do-nothing server, ours, and other routers."""
    # Imported when run: --help is quick, and a missing extra is told by name.
    from rich.console import Console  # noqa: PLC0415

    from extproc.lab.overhead.cases import PREFIXES, all_cases  # noqa: PLC0415
    from extproc.lab.overhead.client import LoadError  # noqa: PLC0415
    from extproc.lab.overhead.run import OverheadOptions, run_overhead  # noqa: PLC0415
    from extproc.lab.processes import StackError  # noqa: PLC0415

    chosen = tuple(dict.fromkeys(prefixes.split(",")))
    if not set(chosen) <= set(PREFIXES):
        raise typer.BadParameter(f"--prefixes: some of {', '.join(PREFIXES)}")
    cases = all_cases(numbers(sizes, "--sizes"), chosen, numbers(clients, "--clients"))
    if quick:
        cases, rounds, requests = all_cases((2,), chosen, (1, 4)), 1, 20
    options = OverheadOptions(
        cases=cases,
        rounds=rounds,
        requests=requests,
        peers=peers,
        seed=seed,
        output=output,
        json_file=json,
        logs=logs,
        command=" ".join(["prefix-extproc", *sys.argv[1:]]),
    )
    console = Console()
    if not console.is_terminal:
        console.width = PIPED_WIDTH
    try:
        run_to_end(run_overhead(options, console))
    except (StackError, LoadError, OSError) as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from error


def numbers(given: str, option: str) -> tuple[int, ...]:
    """Numbers above 0 with commas between, as an option has them.

    Raises:
        typer.BadParameter: It has something else.
    """
    try:
        found = tuple(dict.fromkeys(map(int, given.split(","))))
    except ValueError:
        found = (0,)
    if min(found) < 1:
        raise typer.BadParameter(f"{option}: {given!r} are not numbers above 0 with commas between")
    return found
