"""The lab's part of the command line.

Commands import what they run only when they run: ``--help`` stays quick, and a missing extra is
told by name.
"""

import asyncio
import sys
from pathlib import Path
from socket import gethostname
from typing import Annotated

import typer

from extproc.lab.bench.command import bench
from extproc.lab.decisions.command import decisions
from extproc.lab.overhead.command import overhead
from extproc.lab.replica.latency import DEFAULT_PROFILE, PROFILES
from extproc.lab.running import run_to_end
from extproc.lab.storage.command import store

app = typer.Typer(no_args_is_help=True, help="Simulated replicas, a local stack, a demo.")
lab = typer.Typer(no_args_is_help=True, help="Parts of the local stack.")
app.add_typer(lab, name="lab")
app.add_typer(bench, name="bench")
bench.command()(overhead)
bench.command()(decisions)
bench.command()(store)


@app.command()
def demo(
    *,
    json: Annotated[Path | None, typer.Option(help="Write the rows to this file.")] = None,
    output: Annotated[
        Path, typer.Option(help="Folder of the chart, the rows and the logs.")
    ] = Path("prefix-extproc-demo"),
    seed: Annotated[int, typer.Option(help="Of the workload.")] = 1,
    replicas: Annotated[
        int | None, typer.Option(min=1, help="Replicas. [default: 7; 2 with --vllm]")
    ] = None,
    routers: Annotated[int, typer.Option(min=1, help="Router processes.")] = 2,
    requests: Annotated[int, typer.Option(min=1, help="Requests per strategy.")] = 240,
    rate: Annotated[float, typer.Option(min=0.1, help="Requests per second.")] = 16.0,
    vllm: Annotated[
        bool,
        typer.Option("--vllm", help="Real vLLM servers, with a workload and times of their own."),
    ] = False,
    vllm_python: Annotated[
        Path, typer.Option(help="The Python of an environment that has vLLM.")
    ] = Path(".venv-vllm/bin/python"),
) -> None:
    """Compare the strategies on this machine: Envoy, Valkey, routers, simulated replicas."""
    from rich.console import Console  # noqa: PLC0415

    from extproc.lab.demo import DemoOptions, run_demo  # noqa: PLC0415
    from extproc.lab.experiment import ExperimentError  # noqa: PLC0415
    from extproc.lab.processes import StackError  # noqa: PLC0415
    from extproc.lab.vllm_demo import run_vllm_demo  # noqa: PLC0415

    options = DemoOptions(
        replicas=replicas or (2 if vllm else 7),
        routers=routers,
        requests=requests,
        rate=rate,
        seed=seed,
        output=output,
        json_file=json,
        command=" ".join(["prefix-extproc", *sys.argv[1:]]),
    )
    try:
        if vllm:
            run_to_end(run_vllm_demo(options, vllm_python, Console()))
        else:
            run_to_end(run_demo(options, Console()))
    except (StackError, ExperimentError) as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from error


@lab.command()
def replica(
    *,
    listen: Annotated[
        list[str], typer.Option(help="HOST:PORT of a replica; may be given several times.")
    ],
    model: Annotated[str, typer.Option(help="Model name in /v1/models.")] = "llama-3.1-70b",
    profile: Annotated[
        str, typer.Option(help=f"Latency model: {', '.join(PROFILES)}.")
    ] = DEFAULT_PROFILE,
    cache_tokens: Annotated[
        int, typer.Option(min=0, help="Capacity of the prefix cache; 0: the profile's.")
    ] = 0,
    max_sequences: Annotated[
        int, typer.Option(min=0, help="Sequences that run at once; 0: the profile's.")
    ] = 0,
    batch_tokens: Annotated[
        int, typer.Option(min=0, help="Tokens computed per step; 0: the profile's.")
    ] = 0,
    max_model_len: Annotated[
        int, typer.Option(min=2, help="The model's context in tokens.")
    ] = 131_072,
    truncate: Annotated[
        bool, typer.Option(help="Cut longer prompts, instead of refusing them as vLLM does.")
    ] = True,
    speed: Annotated[
        float, typer.Option(help="Times faster than the latency model; inf never waits.")
    ] = 1.0,
) -> None:
    """Run simulated replicas: vLLM's HTTP API over a latency model."""
    from extproc.lab.replica.http import ReplicaSettings  # noqa: PLC0415
    from extproc.lab.replica.serve import serve  # noqa: PLC0415

    if profile not in PROFILES:
        raise typer.BadParameter(f"{profile!r} is none of {', '.join(PROFILES)}")
    if not speed > 0:
        raise typer.BadParameter("--speed must be above 0")
    replicas = []
    for address in listen:
        host, _, port = address.rpartition(":")
        if not host or not port.isdigit():
            raise typer.BadParameter(f"--listen {address!r} is not HOST:PORT")
        settings = ReplicaSettings(
            name=f"{_name_of(host)}:{port}",
            model=model,
            profile=profile,
            cache_tokens=cache_tokens,
            max_sequences=max_sequences,
            batch_tokens=batch_tokens,
            max_model_len=max_model_len,
            truncate=truncate,
            speed=speed,
        )
        replicas.append((host.strip("[]"), int(port), settings))
    asyncio.run(serve(replicas))


def _name_of(host: str) -> str:
    """What an answer tells of who gave it: in containers all listen everywhere."""
    return gethostname() if host in {"0.0.0.0", "[::]"} else host  # noqa: S104  # not bound here


@lab.command(name="load")
def load_(
    *,
    url: Annotated[str, typer.Option(help="Base URL of the proxy.")] = "http://127.0.0.1:8080",
    rate: Annotated[float, typer.Option(min=0.1, help="Requests per second.")] = 8.0,
    requests: Annotated[int, typer.Option(min=0, help="How many; 0: without end.")] = 0,
    groups: Annotated[int, typer.Option(min=1, help="Shared prefixes in use at a time.")] = 16,
    prefix_tokens: Annotated[int, typer.Option(min=1, help="Length of a prefix.")] = 8000,
    output_tokens: Annotated[int, typer.Option(min=1, help="Length of an answer.")] = 32,
    seed: Annotated[int, typer.Option(help="Of everything drawn.")] = 1,
    model: Annotated[str, typer.Option(help="Model name in each request.")] = "llama-3.1-70b",
) -> None:
    """Send traffic with shared prefixes to a stack that runs already."""
    from extproc.lab.traffic import Traffic, send  # noqa: PLC0415

    traffic = Traffic(
        rate=rate,
        requests=requests,
        groups=groups,
        prefix_tokens=prefix_tokens,
        output_tokens=output_tokens,
        seed=seed,
        model=model,
    )
    if run_to_end(send(traffic, url.rstrip("/"), typer.echo)):
        raise typer.Exit(1)


if __name__ == "__main__":
    app()
