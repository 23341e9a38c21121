"""The command ``top`` on a real admin interface."""

import asyncio
import json
import os
import pty
import signal
import sys

import aiohttp
from aiohttp import web
from typer.testing import CliRunner, Result

from extproc import cli
from tests.server.conftest import Serve, Served, serve
from tests.server.test_admin import request
from tests.server.test_stream import end

__all__ = ["serve"]  # the fixture


async def run(*arguments: str, **environment: str) -> Result:
    return await asyncio.to_thread(
        CliRunner().invoke, cli.app, ["top", *arguments], env={"COLUMNS": "120", **environment}
    )


async def routed(served: Served) -> None:
    await end(await request(served))


async def test_once(serve: Serve) -> None:
    served = await serve()
    await routed(served)
    await routed(served)

    result = await run("--admin", served.pages, "--once")

    assert result.exit_code == 0, result.output
    assert "memory store" in result.output
    assert "2 requests" in result.output
    assert "10.0.0.3:80" in result.output
    assert "matched 1" in result.output


async def test_the_address_is_the_servers_own_where_it_is_in_the_environment(serve: Serve) -> None:
    served = await serve()

    result = await run(PREFIX_EXTPROC_ADMIN=f"0.0.0.0:{served.app.admin_port}")

    assert result.exit_code == 0, result.output
    assert "No request came yet." in result.output


async def test_nobody_there_is_one_line() -> None:
    result = await run("--admin", "127.0.0.1:1")

    assert result.exit_code == 1
    assert result.stderr == (
        "error: no router answers at http://127.0.0.1:1 (ClientConnectorError): "
        "name its admin address with --admin\n"
    )


async def test_another_server_is_one_line() -> None:
    answers = {
        "/a/overview": web.Response(status=404),
        "/b/overview": web.json_response({}),
        "/c/overview": web.json_response([1]),
        "/d/overview": web.Response(text="<html>", content_type="application/json"),
    }

    async def answer(request: web.Request) -> web.Response:
        return answers[request.path]

    app = web.Application()
    app.add_routes([web.get(path, answer) for path in answers])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        for path in answers:
            url = f"http://127.0.0.1:{runner.addresses[0][1]}{path.removesuffix('/overview')}"
            result = await run("--admin", url)
            assert result.exit_code == 1, path
            (told,) = result.stderr.splitlines()
            assert told.startswith("error: ")
            assert url in told
            assert "--admin" in told
    finally:
        await runner.cleanup()


async def test_it_follows_in_a_terminal_and_leaves_it_as_it_was(serve: Serve) -> None:
    served = await serve()
    await routed(served)
    ours, its = pty.openpty()
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "extproc", "top", "--admin", served.pages, "--interval", "0.2"),
        stdin=its,
        stdout=its,
        stderr=its,
        env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "120", "LINES": "50"},
    )
    os.close(its)
    loop = asyncio.get_running_loop()
    text = ""

    async def until(words: str) -> None:
        nonlocal text
        async with asyncio.timeout(60):
            while words not in text:
                text += (await loop.run_in_executor(None, os.read, ours, 65536)).decode()

    try:
        await until("1 requests")
        await routed(served)
        await until("2 requests")
        await served.stop()
        await until("What is shown is old")
        process.send_signal(signal.SIGINT)
        await until("\x1b[?1049l")
        assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        os.close(ours)
    assert "\x1b[?1049h" in text
    assert "Traceback" not in text


async def test_it_shows_what_the_page_shows(serve: Serve) -> None:
    """The facts that the picture is made of are those of a real router."""
    served = await serve()
    await routed(served)
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"{served.pages}/overview") as reply,
    ):
        pool = json.loads(await reply.read())["pools"]["llm"]

    result = await run("--admin", served.pages, "--pool", "llm")

    assert pool["strategy"] in result.output
    for replica in pool["replicas"]:
        assert replica["address"] in result.output
