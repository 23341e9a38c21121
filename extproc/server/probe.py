"""The command ``health``: asks a router's gRPC health service, for health checks of containers.

One runs every few seconds, so this imports little: with the settings it takes twice as long.
"""

from typing import Annotated, Any

import typer

from extproc.address import join_host_port, split_host_port

app = typer.Typer(rich_markup_mode=None)

_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  # not bound, but asked for


@app.callback()
def _group() -> None:
    """Makes a group of the one command."""


@app.command()
def health(
    *,
    address: Annotated[
        str,
        typer.Option(
            help="Of the router: `host:port`, `[ipv6]:port` or `unix:/path`.",
            envvar="PREFIX_EXTPROC_LISTEN",
        ),
    ] = "127.0.0.1:9002",
    service: Annotated[
        str, typer.Option(help="`readiness` (takes requests) or `liveness` (the process lives).")
    ] = "readiness",
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds to wait.")] = 3.0,
) -> None:
    """Ask a router whether it takes requests: exit status 0 if so, else 1."""
    try:
        target = target_of(address)
    except ValueError as error:
        typer.echo(f"error: --address: {error}", err=True)
        raise typer.Exit(2) from None
    status = ask(target, service, timeout)
    typer.echo(f"{target} {service}: {status}", err=status != "SERVING")
    if status != "SERVING":
        raise typer.Exit(1)


def target_of(listen: str) -> str:
    """Where to connect to reach a server that listens so.

    Raises:
        ValueError: If it is no address.
    """
    if listen.startswith("unix:"):
        return listen
    host, port = split_host_port(listen)
    return join_host_port(_EVERYWHERE.get(host, host), port)


def ask(target: str, service: str, timeout_s: float) -> str:
    """The status of a service by ``grpc.health.v1.Health``, or why there is none.

    Args:
        target: Of the gRPC channel.
        service: Its name at the health service.
        timeout_s: For connection and answer together.
    """
    import grpc  # noqa: PLC0415  # ``--help`` does not wait for it
    from grpc_health.v1 import health_pb2, health_pb2_grpc  # noqa: PLC0415

    request = health_pb2.HealthCheckRequest(service=service)
    with grpc.insecure_channel(target, options=[("grpc.enable_http_proxy", 0)]) as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        try:
            answer = stub.Check(request, timeout=timeout_s)
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.NOT_FOUND:
                return "no such service; is this a prefix-extproc?"
            return f"no answer ({error.code().name}): is the router running there?"
    return str(health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status))
