"""Serves simulated replicas until it is told to stop."""

import asyncio
import signal
from collections.abc import Sequence

from aiohttp import web

from extproc.lab.replica.http import Replica, ReplicaSettings

BACKLOG = 1024
HEADER_BYTES = 2**16
"""Of the longest header: no less than what engines take, so that tests see what Envoy refuses."""


async def serve(replicas: Sequence[tuple[str, int, ReplicaSettings]]) -> None:
    """Serve replicas, each on its own host and port, until SIGTERM or SIGINT.

    Raises:
        OSError: If an address cannot be bound.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    runners: list[web.AppRunner] = []
    try:
        for host, port, settings in replicas:
            runner = web.AppRunner(
                Replica(settings).application,
                access_log=None,
                auto_decompress=False,  # digests are of what arrived
                max_field_size=HEADER_BYTES,
                handler_cancellation=True,  # a client that leaves aborts its sequence
                shutdown_timeout=0.5,
            )
            runners.append(runner)
            await runner.setup()
            await web.TCPSite(runner, host, port, backlog=BACKLOG).start()
        await stop.wait()
    finally:
        await asyncio.gather(*(runner.cleanup() for runner in runners))
