"""A replica whose mood and life a test decides on."""

import asyncio
import hashlib
from collections import Counter
from enum import Enum, auto

from aiohttp import web

PIECES = 4
PIECE = b'data: {"choices": []}\n\n'
SLOW_S = 1.0
"""What a slow replica takes before each piece, its head too."""


class Mood(Enum):
    """What becomes of the next request."""

    WELL = auto()
    """200, a head with the digest of the body that came, and a body of some pieces."""
    ERRORS = auto()
    """500 at once."""
    SILENT = auto()
    """No answer, until the replica is of another mood."""
    SLOW = auto()
    """As WELL, a second before each piece."""
    RESET = auto()
    """The connection is reset instead of an answer."""
    CUT = auto()
    """The connection is reset in the middle of the answer's body."""
    STALLED = auto()
    """Nothing more after half of the answer's body, until the replica is of another mood."""
    GARBAGE = auto()
    """Bytes that are not HTTP."""


class MoodyReplica:
    """A model server on a port of its own, which it keeps when it is killed and started again.

    Attributes:
        mood: Of what comes next; a request may bring its own in the header ``x-mood``.
        hits: Requests that came, by the header ``x-pool``.
    """

    def __init__(self) -> None:
        self.hits: Counter[str] = Counter()
        self._mood = Mood.WELL
        self._changed = asyncio.Event()
        self._port = 0
        self._runner: web.AppRunner | None = None

    @property
    def mood(self) -> Mood:
        return self._mood

    @mood.setter
    def mood(self, mood: Mood) -> None:
        self._mood = mood
        self._changed.set()
        self._changed = asyncio.Event()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    async def start(self) -> None:
        app = web.Application(client_max_size=2**27)
        app.router.add_get("/health", self._health)
        app.router.add_post("/{path:.*}", self._answer)
        self._runner = web.AppRunner(
            app, access_log=None, handler_cancellation=True, shutdown_timeout=0.05
        )
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self._port, backlog=1024).start()
        self._port = self._runner.addresses[0][1]

    async def kill(self) -> None:
        """Refuse connections, and reset those that are open."""
        assert self._runner is not None
        await self._runner.cleanup()

    async def _health(self, _request: web.Request) -> web.Response:
        return web.Response(status=200 if self._mood is Mood.WELL else 500)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.hits[request.headers.get("x-pool", "")] += 1
        digest = hashlib.sha256(await request.read()).hexdigest()
        mood, changed = self._mood, self._changed
        if "x-mood" in request.headers:
            mood = Mood[request.headers["x-mood"]]
        if mood is Mood.SILENT:
            await changed.wait()
        if mood in (Mood.RESET, Mood.GARBAGE):
            return _broken(request, b"\0\1garbage\r\n\r\n" if mood is Mood.GARBAGE else b"")
        headers = {"x-replica": self.address, "x-body-sha256": digest}
        if mood is Mood.ERRORS:
            return web.Response(status=500, headers=headers)
        if mood is Mood.SLOW:
            await asyncio.sleep(SLOW_S)
        response = web.StreamResponse(headers=headers)
        await response.prepare(request)
        for piece in range(PIECES):
            if piece == PIECES // 2 and mood is Mood.CUT:
                return _broken(request)
            if piece == PIECES // 2 and mood is Mood.STALLED:
                await changed.wait()
            if mood is Mood.SLOW:
                await asyncio.sleep(SLOW_S)
            await response.write(PIECE)
        await response.write_eof()
        return response


def _broken(request: web.Request, last: bytes = b"") -> web.Response:
    """End the connection behind some last bytes."""
    if request.transport is not None:
        if last:
            request.transport.write(last)
            request.transport.close()
        else:
            request.transport.abort()
    return web.Response()
