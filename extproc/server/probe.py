"""The command ``health``: asks a router's gRPC health service, for health checks of containers.

One runs every few seconds, so this imports little: with the settings it takes twice as long.
"""

from pathlib import Path
from typing import Annotated, Any, NamedTuple

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
    ca: Annotated[
        Path | None, typer.Option(help="PEM file with who signs the router's certificate: TLS.")
    ] = None,
    cert: Annotated[Path | None, typer.Option(help="PEM file to show, where it asks.")] = None,
    key: Annotated[Path | None, typer.Option(help="PEM file with its private key.")] = None,
    name: Annotated[
        str, typer.Option(help="That the certificate has, if it is not the address's.")
    ] = "",
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds to wait.")] = 3.0,
) -> None:
    """Ask a router whether it takes requests: exit status 0 if so, else 1."""
    try:
        target = target_of(address)
    except ValueError as error:
        typer.echo(f"error: --address: {error}", err=True)
        raise typer.Exit(2) from None
    try:
        tls = None if ca is None else Tls(_bytes(ca), _bytes(cert), _bytes(key))
    except OSError as error:
        typer.echo(f"error: {error.filename}: {(error.strerror or '').lower()}", err=True)
        raise typer.Exit(2) from None
    status = ask(target, service, timeout, tls, name)
    typer.echo(f"{target} {service}: {status}", err=status != "SERVING")
    if status != "SERVING":
        raise typer.Exit(1)


class Tls(NamedTuple):
    """PEM texts: who is trusted, and what to show."""

    ca: bytes | None
    cert: bytes | None = None
    key: bytes | None = None


def _bytes(path: Path | None) -> bytes | None:
    return None if path is None else path.read_bytes()


def target_of(listen: str) -> str:
    """Where to connect to reach a server that listens so.

    Raises:
        ValueError: If it is no address.
    """
    if listen.startswith("unix:"):
        return listen
    host, port = split_host_port(listen)
    return join_host_port(_EVERYWHERE.get(host, host), port)


def ask(target: str, service: str, timeout_s: float, tls: Tls | None = None, name: str = "") -> str:
    """The status of a service by ``grpc.health.v1.Health``, or why there is none.

    Args:
        target: Of the gRPC channel.
        service: Its name at the health service.
        timeout_s: For connection and answer together.
        tls: For a server that speaks TLS.
        name: That its certificate has; empty for the target's.
    """
    import grpc  # noqa: PLC0415  # ``--help`` does not wait for it
    from grpc_health.v1 import health_pb2, health_pb2_grpc  # noqa: PLC0415

    request = health_pb2.HealthCheckRequest(service=service)
    options: list[tuple[str, Any]] = [("grpc.enable_http_proxy", 0)]
    if name:
        options.append(("grpc.ssl_target_name_override", name))
    if tls is None:
        opened = grpc.insecure_channel(target, options=options)
    else:
        trusted = grpc.ssl_channel_credentials(tls.ca, tls.key, tls.cert)
        opened = grpc.secure_channel(target, trusted, options=options)
    with opened as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        try:
            answer = stub.Check(request, timeout=timeout_s)
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.NOT_FOUND:
                return "no such service; is this a prefix-extproc?"
            return f"no answer ({error.code().name}): is the router running there?"
    return str(health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status))
