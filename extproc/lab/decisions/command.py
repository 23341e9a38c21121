"""The command ``bench decisions``."""

from typing import Annotated

import typer


def decisions(
    *,
    requests: Annotated[int, typer.Option(min=1, help="How many.")] = 100_000,
    seed: Annotated[int, typer.Option(help="Of the requests.")] = 1,
) -> None:
    """A hash of all decisions on one workload: equal hashes before and after a change."""
    from extproc.lab.decisions.replay import replay  # noqa: PLC0415  # --help is quick

    found = replay(requests, seed=seed)
    for reason, count in found.reasons.items():
        typer.echo(f"{reason:12} {count}")
    typer.echo(f"{found.requests} requests, {found.faults} faults, replies {found.digest}")
    if found.faults:
        raise typer.Exit(1)
