"""Replicas in the test's own process, which do what a request's header ``x-script`` says.

They tell in ``x-destination`` where the router wanted a request to go, and in ``x-body-sha256`` the
digest of what they got.
"""

import asyncio
import hashlib
from collections import Counter
from types import TracebackType
from typing import Self

from aiohttp import web

from extproc.processing import DESTINATION

SCRIPT = "x-script"
HOLD = "hold"
"""Send the response's head and its first event, and the end only when ``let_go`` is called."""
RESET = "reset"
"""Read the request and drop the connection."""
STREAM = "stream"
"""Answer with a few events. A number answers with that status, anything else with 200."""

EVENT = b'data: {"choices":[{"index":0,"delta":{"content":" sea"}}]}\n\n'
DONE = b"data: [DONE]\n\n"


class ScriptedReplicas:
    """Several replicas on loopback ports.

    Attributes:
        addresses: ``ip:port`` of each.
        held: Address to the responses that it holds open.
    """

    def __init__(self, count: int) -> None:
        self.addresses: list[str] = []
        self.held: Counter[str] = Counter()
        self._count = count
        self._gate = asyncio.Event()
        self._runners: list[web.AppRunner] = []

    async def __aenter__(self) -> Self:
        for _ in range(self._count):
            app = web.Application(client_max_size=2**30)
            app.router.add_route("*", "/{path:.*}", self._answer)
            runner = web.AppRunner(
                app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1
            )
            await runner.setup()
            self._runners.append(runner)
            await web.TCPSite(runner, "127.0.0.1", 0, backlog=1024).start()
            host, port = runner.addresses[0][:2]
            self.addresses.append(f"{host}:{port}")
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.let_go()
        await asyncio.gather(*(runner.cleanup() for runner in self._runners))

    def let_go(self) -> None:
        """End all responses that are held; later ones are held again."""
        gate, self._gate = self._gate, asyncio.Event()
        gate.set()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        script = request.headers.get(SCRIPT, "")
        digest = hashlib.sha256(await request.read()).hexdigest()
        if script == RESET:
            assert request.transport is not None
            request.transport.abort()
            await asyncio.Event().wait()  # cancelled, as whatever loses its connection
        headers = {
            "x-replica": _address(request),
            "x-destination": request.headers.get(DESTINATION, ""),
            "x-body-sha256": digest,
        }
        if script in {HOLD, STREAM}:
            return await self._stream(request, headers, hold=script == HOLD)
        return web.json_response({}, status=int(script or 200), headers=headers)

    async def _stream(
        self, request: web.Request, headers: dict[str, str], *, hold: bool
    ) -> web.StreamResponse:
        address, gate = headers["x-replica"], self._gate
        response = web.StreamResponse(headers={**headers, "content-type": "text/event-stream"})
        self.held[address] += 1
        try:
            await response.prepare(request)
            await response.write(EVENT)
            if hold:
                await gate.wait()
            await response.write(DONE)
            await response.write_eof()
        finally:
            self.held[address] -= 1
        return response


def _address(request: web.Request) -> str:
    assert request.transport is not None
    host, port = request.transport.get_extra_info("sockname")[:2]
    return f"{host}:{port}"
