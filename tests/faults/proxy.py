"""Between a router and its store: a connection that can be slow, or lead nowhere."""

import asyncio
from contextlib import suppress

LOOPBACK = "127.0.0.1"


class Proxy:
    """Passes bytes on to a port of this machine.

    Attributes:
        port: Where it listens.
        delay_s: What it holds the bytes of each answer back for.
        parted: Whether bytes get lost both ways while connections stay open, as where a network
            has fallen in two.
    """

    def __init__(self, port: int, target: int) -> None:
        self.port = port
        self.delay_s = 0.0
        self.parted = False
        self._target = target
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accept, LOOPBACK, self.port)

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there = await asyncio.open_connection(LOOPBACK, self._target)
        except OSError:
            writer.transport.abort()
            return
        for source, sink, back in ((reader, there[1], False), (there[0], writer, True)):
            task = asyncio.create_task(self._pump(source, sink, back=back))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pump(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, back: bool
    ) -> None:
        try:
            with suppress(OSError):
                while data := await source.read(1 << 16):
                    if back and self.delay_s:
                        await asyncio.sleep(self.delay_s)
                    if not self.parted:
                        sink.write(data)
                        await sink.drain()
        finally:
            sink.transport.abort()
