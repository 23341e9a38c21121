"""The least that an ext_proc server on grpc.aio can do: it sets one header, and knows nothing.

What a router takes beyond this is its own doing; what this takes is Envoy's, gRPC's and Python's.
It stays as it is, so that figures of different days can be compared.

Run it with ``python -m extproc.lab.overhead.floor --listen HOST:PORT --replica HOST:PORT ...``.
"""

import asyncio
import signal
from itertools import cycle
from typing import Annotated, Any

import grpc
import typer
from envoy.config.core.v3.base_pb2 import HeaderValueOption
from envoy.service.ext_proc.v3 import external_processor_pb2 as pb
from envoy.service.ext_proc.v3 import external_processor_pb2_grpc as rpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

SERVICE = "envoy.service.ext_proc.v3.ExternalProcessor"
HEADER = "x-gateway-destination-endpoint"
KINDS = (
    "request_headers",
    "request_body",
    "request_trailers",
    "response_headers",
    "response_body",
    "response_trailers",
)


class Floor(rpc.ExternalProcessorServicer):  # type: ignore[misc]  # generated, untyped
    """Answers every message, the request's body with a replica: each in its turn.

    Args:
        replicas: ``ip:port`` of each; at least one.
    """

    def __init__(self, replicas: list[str]) -> None:
        self._empty = {kind: _empty(kind) for kind in KINDS}
        self._choices = cycle([_choice(replica) for replica in replicas])

    async def Process(self, _requests: Any, context: Any) -> None:  # noqa: N802  # the RPC's name
        """One HTTP request. Read and written by calls: generators cost more."""
        while (message := await context.read()) is not grpc.aio.EOF:
            kind = message.WhichOneof("request")
            await context.write(
                next(self._choices) if kind == "request_body" else self._empty[kind]
            )


def _empty(kind: str) -> Any:
    message = pb.ProcessingResponse()
    getattr(message, kind).SetInParent()
    return message


def _choice(replica: str) -> Any:
    message = pb.ProcessingResponse()
    option = message.request_body.response.header_mutation.set_headers.add(
        append_action=HeaderValueOption.OVERWRITE_IF_EXISTS_OR_ADD
    )
    option.header.key = HEADER
    option.header.raw_value = replica.encode()
    return message


async def serve(listen: str, replicas: list[str]) -> None:
    """Serve until SIGTERM or SIGINT."""
    server = grpc.aio.server(options=[("grpc.max_receive_message_length", -1)])
    rpc.add_ExternalProcessorServicer_to_server(Floor(replicas), server)
    healthy = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(healthy, server)
    await healthy.set(SERVICE, health_pb2.HealthCheckResponse.SERVING)
    server.add_insecure_port(listen)
    await server.start()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await stop.wait()
    await server.stop(None)


def main(
    listen: Annotated[str, typer.Option(help="HOST:PORT of the gRPC service.")],
    replica: Annotated[list[str], typer.Option(help="HOST:PORT; may be given several times.")],
) -> None:
    """Serve ext_proc at the least cost."""
    asyncio.run(serve(listen, replica))


if __name__ == "__main__":
    typer.run(main)
