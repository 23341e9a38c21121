from collections.abc import Sequence
from typing import Any

import grpc
from envoy.service.ext_proc.v3 import external_processor_pb2 as pb
from envoy.service.ext_proc.v3 import external_processor_pb2_grpc as rpc

from extproc.lab.overhead.floor import HEADER, KINDS, SERVICE, Floor
from extproc.processing import DESTINATION
from extproc.server import health

REPLICAS = ["10.0.0.1:8000", "10.0.0.2:8000"]


async def answers(channel: grpc.aio.Channel, kinds: Sequence[str]) -> list[Any]:
    """What one stream is answered, message by message."""
    call = rpc.ExternalProcessorStub(channel).Process()
    received = []
    for kind in kinds:
        request = pb.ProcessingRequest()
        getattr(request, kind).SetInParent()
        await call.write(request)
        received.append(await call.read())
    await call.done_writing()
    assert await call.read() is grpc.aio.EOF
    assert await call.code() is grpc.StatusCode.OK
    return received


async def test_the_floor_answers_every_message_and_the_body_with_each_replica_in_turn() -> None:
    server = grpc.aio.server()
    rpc.add_ExternalProcessorServicer_to_server(Floor(REPLICAS), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            streams = [await answers(channel, KINDS) for _ in range(3)]
    finally:
        await server.stop(None)
    for received in streams:
        assert [message.WhichOneof("response") for message in received] == list(KINDS)
        for kind, message in zip(KINDS, received, strict=True):
            if kind != "request_body":
                assert not getattr(message, kind).ByteSize()
    options = [
        message.request_body.response.header_mutation.set_headers[0].header
        for _, message, *_ in streams
    ]
    assert {option.key for option in options} == {HEADER}
    assert [option.raw_value.decode() for option in options] == [*REPLICAS, REPLICAS[0]]


def test_the_floor_has_the_routers_names() -> None:
    assert HEADER == DESTINATION
    assert SERVICE == health.SERVICE
