import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import grpc
import pytest
from envoy.service.ext_proc.v3 import external_processor_pb2_grpc as rpc

from extproc.server.app import App
from extproc.settings import load

STATIC = (
    ("x-prefix-replicas", "10.0.0.1:80,10.0.0.2:80,10.0.0.3:80"),
    ("x-prefix-prefill-rate", "1"),  # nothing drains while a test looks
)


class Served:
    """An app that runs in this process, and a channel to it."""

    def __init__(self, app: App, channel: grpc.aio.Channel, running: asyncio.Task[None]) -> None:
        self.app = app
        self.channel = channel
        self.running = running

    def open(self, metadata: tuple[tuple[str, str], ...] = STATIC) -> Any:
        """A stream, as Envoy opens one for each request."""
        return rpc.ExternalProcessorStub(self.channel).Process(metadata=metadata)

    @property
    def pages(self) -> str:
        return f"http://127.0.0.1:{self.app.admin_port}"

    async def stop(self) -> None:
        self.app.stop()
        await self.running


Serve = Callable[..., Any]


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    """Starts apps on free ports; stops them at the end."""
    async with AsyncExitStack() as stack:

        async def start(**flags: str) -> Served:
            app = App(load({"listen": "127.0.0.1:0", "admin": "127.0.0.1:0"} | flags))
            running = asyncio.create_task(app.run())
            started = asyncio.create_task(app.started.wait())
            await asyncio.wait({running, started}, return_when=asyncio.FIRST_COMPLETED)
            if running.done():
                started.cancel()
                running.result()
            target = flags.get("listen") or f"127.0.0.1:{app.port}"
            channel = grpc.aio.insecure_channel(target)
            served = Served(app, channel, running)
            stack.push_async_callback(served.stop)
            stack.push_async_callback(channel.close)
            return served

        yield start
