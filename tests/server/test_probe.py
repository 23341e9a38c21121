"""The health check of a container."""

import asyncio
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from extproc.cli import app
from extproc.server.probe import ask, target_of
from tests.server.conftest import Serve
from tests.server.messages import chat, request_body, request_headers
from tests.server.test_stream import exchange


@pytest.mark.parametrize(
    ("listen", "target"),
    [
        ("127.0.0.1:9002", "127.0.0.1:9002"),
        ("0.0.0.0:9002", "127.0.0.1:9002"),
        ("[::]:9002", "[::1]:9002"),
        ("router.example:9002", "router.example:9002"),
        ("unix:/run/router", "unix:/run/router"),
    ],
)
def test_a_server_is_asked_where_it_listens(listen: str, target: str) -> None:
    assert target_of(listen) == target


async def test_a_router_is_ready_until_it_drains(serve: Serve, tmp_path: Path) -> None:
    listen = f"unix:{tmp_path}/router"
    served = await serve(listen=listen, drain_delay="60")
    call = served.open()
    await exchange(call, request_headers(), request_body(chat("hello")))

    async def status(service: str) -> str:
        return await asyncio.to_thread(ask, listen, service, 60.0)

    assert await status("readiness") == "SERVING"
    assert (await status("nothing")).startswith("no such service")
    served.app.stop()
    await served.app.drained.wait()
    assert await status("readiness") == "NOT_SERVING"
    assert await status("liveness") == "SERVING"


async def test_the_exit_status_tells(serve: Serve) -> None:
    served = await serve()
    listen = f"127.0.0.1:{served.app.port}"

    result = await asyncio.to_thread(
        CliRunner().invoke,
        app,
        ["health", "--timeout", "60"],
        env={"PREFIX_EXTPROC_LISTEN": listen},
    )

    assert (result.exit_code, result.stdout) == (0, f"{listen} readiness: SERVING\n")


def test_nobody_there_is_one_line_and_code_1() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # does not listen
        port = unused.getsockname()[1]

        result = CliRunner().invoke(app, ["health", "--address", f"127.0.0.1:{port}"])

    assert result.exit_code == 1
    assert result.stderr.startswith(f"127.0.0.1:{port} readiness: no answer (")
    assert len(result.stderr.splitlines()) == 1


def test_an_address_that_is_none_is_code_2() -> None:
    result = CliRunner().invoke(app, ["health", "--address", "nowhere"])

    assert result.exit_code == 2
    assert "error: --address: write host:port" in result.stderr


def test_a_health_check_imports_little() -> None:
    script = "import sys, extproc.cli, extproc.server.probe; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout.split()

    assert "typer" in loaded
    assert not {"pydantic", "redis", "aiohttp", "envoy"} & set(loaded)
