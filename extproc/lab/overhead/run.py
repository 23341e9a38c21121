"""One run of the benchmark, from the start of all parts to what is shown."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from extproc.lab.overhead import report
from extproc.lab.overhead.cases import Case
from extproc.lab.overhead.measure import measure
from extproc.lab.overhead.peers import KNOWN, Peer, find
from extproc.lab.overhead.rows import OverheadRow, pool
from extproc.lab.overhead.stack import OverheadStack
from extproc.lab.report import write_json


@dataclass(frozen=True, slots=True)
class OverheadOptions:
    """What to run; see the command's options.

    Attributes:
        cases: What to send.
        rounds: Turns of each way in each case.
        requests: Per case, way and round, where they are short.
        peers: Whether other routers take part.
        seed: Of the prompts' text.
        output: Folder of the results.
        json_file: Where else to write the rows.
        logs: Folder of all parts' logs, or None.
        command: What was typed, for the record.
    """

    cases: Sequence[Case]
    rounds: int
    requests: int
    peers: bool
    seed: int
    output: Path
    json_file: Path | None
    logs: Path | None
    command: str


async def run_overhead(options: OverheadOptions, console: Console) -> list[OverheadRow]:
    """Measure, show, and write the results.

    Raises:
        StackError: If a part does not start, or dies.
        LoadError: If a request is not answered with 200.
    """
    peers = _peers(console) if options.peers else []
    async with OverheadStack(peers=peers, folder=options.logs) as stack:
        with console.status("") as status:
            measured = await measure(
                stack,
                options.cases,
                rounds=options.rounds,
                requests=options.requests,
                seed=options.seed,
                progress=status.update,
            )
    rows = pool(measured.samples)
    console.print(report.table(rows))
    for line in report.notes(rows, measured):
        console.print(line)
    content = report.as_document(options.command, options.seed, rows, measured)
    written = report.write_all(options.output, content, rows)
    if options.json_file is not None:
        write_json(options.json_file, content)
        written.append(options.json_file)
    console.print("Written: " + ", ".join(map(str, written)))
    return rows


def _peers(console: Console) -> list[Peer]:
    found = []
    for known in KNOWN:
        peer = find(known)
        if peer is None:
            console.print(
                f"{known.name} is left out: no program of that name here; `make peers` installs "
                f"{known.version}"
            )
        else:
            found.append(peer)
    return found
