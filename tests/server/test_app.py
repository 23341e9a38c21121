"""Start, health, drain and end of one process."""

import asyncio
import socket
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from extproc.server.app import ServeError, bound
from extproc.server.health import LIVENESS, SERVICE
from tests.server.conftest import Serve, Served
from tests.server.messages import chat, request_body, request_headers, response_headers
from tests.server.test_stream import end, exchange, in_flight

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
READY = ("", "readiness", SERVICE)


async def health(served: Served, name: str) -> int:
    stub: Any = health_pb2_grpc.HealthStub(served.channel)
    answer = await stub.Check(health_pb2.HealthCheckRequest(service=name))
    return int(answer.status)


@pytest.mark.parametrize("name", [*READY, LIVENESS])
async def test_health_of_every_part(serve: Serve, name: str) -> None:
    assert await health(await serve(), name) == SERVING


async def test_health_of_no_part(serve: Serve) -> None:
    served = await serve()
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await health(served, "unknown")
    assert error.value.code() is grpc.StatusCode.NOT_FOUND


async def test_reflection_lists_the_services(serve: Serve) -> None:
    served = await serve()
    stub: Any = reflection_pb2_grpc.ServerReflectionStub(served.channel)
    call = stub.ServerReflectionInfo()
    await call.write(reflection_pb2.ServerReflectionRequest(list_services=""))
    answer = await call.read()
    await call.done_writing()

    names = {service.name for service in answer.list_services_response.service}
    assert names == {
        SERVICE,
        "grpc.health.v1.Health",
        "grpc.reflection.v1alpha.ServerReflection",
    }


async def test_draining_finishes_what_is_open(serve: Serve) -> None:
    served = await serve(drain_delay="60")
    call = served.open()
    await exchange(call, request_headers(), request_body(chat("hello")))

    served.app.stop()
    await served.app.drained.wait()
    assert [await health(served, name) for name in READY] == [NOT_SERVING] * 3
    assert await health(served, LIVENESS) == SERVING

    await exchange(call, response_headers("10.0.0.1:80"))
    await end(call)
    assert not served.running.done()


async def test_draining_takes_no_new_requests_and_ends_with_the_last(serve: Serve) -> None:
    served = await serve(drain_deadline="60")
    call = served.open()
    await exchange(call, request_headers(), request_body(chat("hello")))

    served.app.stop()
    await served.app.drained.wait()
    with pytest.raises(grpc.aio.AioRpcError):
        await exchange(served.open(), request_headers())
    await exchange(call, response_headers("10.0.0.1:80"))
    await end(call)

    await served.running


async def test_the_deadline_ends_what_is_still_open(serve: Serve) -> None:
    served = await serve(drain_deadline="0")
    call = served.open()
    await exchange(call, request_headers(), request_body(chat("hello")))

    await served.stop()

    assert await in_flight(served) == 0
    with pytest.raises(grpc.aio.AioRpcError):
        await call.read()


async def test_a_second_stop_ends_at_once(serve: Serve) -> None:
    served = await serve(drain_deadline="3600")
    call = served.open()
    await exchange(call, request_headers(), request_body(chat("hello")))

    served.app.stop()
    await served.app.drained.wait()
    served.app.stop()
    await served.running

    assert await in_flight(served) == 0


async def test_a_unix_socket(serve: Serve, tmp_path: Path) -> None:
    served = await serve(listen=f"unix:{tmp_path / 'router.sock'}")

    assert await health(served, SERVICE) == SERVING


async def test_a_socket_left_behind_is_taken_over(serve: Serve, tmp_path: Path) -> None:
    path = tmp_path / "router.sock"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))

    assert await health(await serve(listen=f"unix:{path}"), SERVICE) == SERVING


async def test_a_socket_in_use_is_not(serve: Serve, tmp_path: Path) -> None:
    listen = f"unix:{tmp_path / 'router.sock'}"
    await serve(listen=listen)

    with pytest.raises(ServeError, match="another process serves there"):
        await serve(listen=listen)


async def test_a_socket_in_no_folder(serve: Serve) -> None:
    with pytest.raises(ServeError, match="the folder /nowhere does not exist"):
        await serve(listen="unix:/nowhere/router.sock")


async def test_a_socket_whose_path_is_too_long(serve: Serve, tmp_path: Path) -> None:
    with pytest.raises(ServeError, match=r"cannot listen on unix:/.*, with --listen"):
        await serve(listen=f"unix:{tmp_path / ('r' * 120)}")


async def test_a_port_in_use(serve: Serve) -> None:
    served = await serve()
    listen = f"127.0.0.1:{served.app.port}"

    with pytest.raises(ServeError) as error:
        await serve(listen=listen)

    assert str(error.value) == (
        f"cannot listen on {listen}: address already in use; choose another with --listen"
    )


async def test_an_address_of_another_machine(serve: Serve) -> None:
    with pytest.raises(ServeError, match=r"cannot listen on 192\.0\.2\.1:0: .*; choose another"):
        await serve(listen="192.0.2.1:0")


async def test_an_admin_port_in_use(serve: Serve) -> None:
    served = await serve()
    admin = f"127.0.0.1:{served.app.admin_port}"

    with pytest.raises(ServeError, match=f"on {admin}: address already in use; choose"):
        await serve(admin=admin)


async def test_without_admin_pages(serve: Serve) -> None:
    served = await serve(admin="")

    assert served.app.admin_port == 0
    assert await health(served, SERVICE) == SERVING


async def test_an_unreachable_store_is_no_reason_not_to_serve(serve: Serve) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    served = await serve(store=f"redis://127.0.0.1:{port}/0")
    call = served.open()

    replies = await exchange(call, request_headers(), request_body(chat("hello")))
    await end(call)

    assert replies[1].request_body.response.header_mutation.set_headers
    assert not served.app.store.status().shared
    assert await asyncio.wait_for(health(served, "readiness"), 10) == SERVING


def test_the_log_names_the_port_that_was_found() -> None:
    assert bound("127.0.0.1:0", 4711) == "127.0.0.1:4711"
    assert bound("[::1]:0", 4711) == "[::1]:4711"
    assert bound("unix:/run/r.sock", 0) == "unix:/run/r.sock"
    assert bound("", 0) == ""


async def test_a_file_in_the_place_of_the_socket_is_left_alone(
    serve: Serve, tmp_path: Path
) -> None:
    path = tmp_path / "router.sock"
    path.write_text("precious")

    with pytest.raises(ServeError, match="is there and no socket"):
        await serve(listen=f"unix:{path}")
    assert path.read_text() == "precious"
