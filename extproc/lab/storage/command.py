"""The command ``bench store``."""

import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from extproc.lab.overhead.command import PIPED_WIDTH, numbers
from extproc.lab.running import run_to_end


def store(
    *,
    prompts: Annotated[str, typer.Option(help="Lengths of prompts in kB.")] = "4,32,400",
    replicas: Annotated[str, typer.Option(help="Replicas that may be chosen.")] = "8,64,256",
    routers: Annotated[str, typer.Option(help="Routers that ask at the same time.")] = "1,8",
    decisions: Annotated[int, typer.Option(min=1, help="Per case and round.")] = 1000,
    rounds: Annotated[int, typer.Option(min=1, help="Turns of each case.")] = 5,
    quick: Annotated[
        bool, typer.Option("--quick", help="Short: one round of few decisions, 8 replicas.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Of the prompts' text.")] = 1,
    output: Annotated[
        Path, typer.Option(help="Folder of the chart, the CSV file and the rows.")
    ] = Path("prefix-extproc-bench"),
    json: Annotated[Path | None, typer.Option(help="Write the rows to this file too.")] = None,
) -> None:
    """What one Valkey can do: routers drive it alone, without Envoy and gRPC."""
    # Imported when run: --help is quick, and a missing extra is told by name.
    from rich.console import Console  # noqa: PLC0415

    from extproc.affinity import StoreError  # noqa: PLC0415
    from extproc.lab.processes import PortPool, StackError  # noqa: PLC0415
    from extproc.lab.report import write_json  # noqa: PLC0415
    from extproc.lab.stack import valkey_part  # noqa: PLC0415
    from extproc.lab.storage.measure import StoreRow, all_cases, measure  # noqa: PLC0415
    from extproc.lab.storage.report import as_document, table, write_all  # noqa: PLC0415

    cases = all_cases(
        numbers(prompts, "--prompts"),
        numbers(replicas, "--replicas"),
        numbers(routers, "--routers"),
    )
    if quick:
        cases, rounds, decisions = all_cases((4, 32), (8,), (1,)), 1, 100
    console = Console()
    if not console.is_terminal:
        console.width = PIPED_WIDTH

    async def run() -> list[StoreRow]:
        with tempfile.TemporaryDirectory(prefix="prefix-extproc-") as folder:
            port = PortPool().take()
            valkey = valkey_part(port, Path(folder))
            await valkey.start()
            try:
                with console.status("") as status:
                    return await measure(
                        valkey,
                        port,
                        cases,
                        decisions=decisions,
                        rounds=rounds,
                        seed=seed,
                        progress=status.update,
                    )
            finally:
                await valkey.stop()

    try:
        rows = run_to_end(run())
    except (StackError, StoreError, OSError) as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from error
    console.print(table(rows))
    console.print(
        f"Median of {rounds} rounds by Valkey's processor time. Scripts: by Valkey's clock, which "
        "counts waiting for a processor. CPU: by the kernel's account of each process."
    )
    content = as_document(" ".join(["prefix-extproc", *sys.argv[1:]]), seed, rows)
    written = write_all(output, content, rows)
    if json is not None:
        write_json(json, content)
        written.append(json)
    console.print("Written: " + ", ".join(map(str, written)))
