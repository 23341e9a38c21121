"""The lab's part of the command line."""

import asyncio
from typing import Annotated

import typer

from extproc.lab.replica.http import ReplicaSettings
from extproc.lab.replica.latency import DEFAULT_PROFILE, PROFILES
from extproc.lab.replica.serve import serve

app = typer.Typer(no_args_is_help=True, help="Simulated replicas, a local stack, a demo.")
lab = typer.Typer(no_args_is_help=True, help="Parts of the local stack.")
app.add_typer(lab, name="lab")


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
    max_sequences: Annotated[int, typer.Option(min=1, help="Sequences that run at once.")] = 256,
    batch_tokens: Annotated[int, typer.Option(min=1, help="Tokens computed per step.")] = 8192,
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
            name=address,
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


if __name__ == "__main__":
    app()
