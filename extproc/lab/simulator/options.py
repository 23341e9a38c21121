"""The options of ``simulate``."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from extproc.lab.replica.latency import PROFILES
from extproc.lab.simulator.trial import STRATEGIES
from extproc.lab.simulator.workloads import WORKLOADS

Source = Annotated[
    str,
    typer.Argument(
        metavar="TRACE|WORKLOAD",
        help="A JSONL file (Mooncake's format, a log of timestamp, path and body, or a decision "
        f"log), or one of {', '.join(WORKLOADS)}.",
    ),
]
Strategies = Annotated[str, typer.Option(help=f"Some of {','.join(STRATEGIES)}; or all.")]
Replicas = Annotated[int, typer.Option(min=1, help="Model servers.")]
Routers = Annotated[int, typer.Option(min=1, help="Routers.")]
State = Annotated[
    Literal["shared", "separate"],
    typer.Option(help="Whether routers share what they know, as with Redis."),
]
ProfileName = Annotated[str, typer.Option(help=f"Model and machine: {', '.join(PROFILES)}.")]
RateScale = Annotated[float, typer.Option(min=0.001, help="How many times faster to send.")]
Capacity = Annotated[int, typer.Option(min=0, help="Tokens in each cache; 0: the profile's.")]
Limit = Annotated[int, typer.Option(min=0, help="Requests at most; 0: all.")]
Seed = Annotated[int, typer.Option(help="The first seed.")]
Seeds = Annotated[int, typer.Option(min=1, help="Seeds to average over.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", help="A pool's setting as KEY=VALUE, such as prefill-rate=20000."),
]
Pool = Annotated[str, typer.Option(help="The pool to take from a decision log of several.")]
OutputTokens = Annotated[
    int, typer.Option(min=1, help="Tokens of an answer where a log does not tell.")
]
Jobs = Annotated[int, typer.Option(min=0, help="Processes; 0: as many as processors.")]
Json = Annotated[Path | None, typer.Option(help="Write the averages to this file.")]
Csv = Annotated[Path | None, typer.Option(help="Write a row per strategy and seed to this file.")]
Charts = Annotated[Path | None, typer.Option(help="Write the charts as PNG into this folder.")]
Report = Annotated[
    Path | None, typer.Option(help="Write an HTML page with charts to this file, for everybody.")
]
