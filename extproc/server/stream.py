"""The ext_proc service: one gRPC stream for each HTTP request."""

import asyncio
from time import perf_counter
from typing import Any

import grpc
from envoy.service.ext_proc.v3 import external_processor_pb2_grpc as rpc

from extproc.processing import (
    DecisionDue,
    Event,
    Reply,
    Responded,
    ResponseEnded,
    Session,
    Violation,
)
from extproc.server.exchange import Exchange
from extproc.server.metrics import Metrics
from extproc.server.router import Router

Context = grpc.aio.ServicerContext[Any, Any]


class Processor(rpc.ExternalProcessorServicer):  # type: ignore[misc]  # generated, untyped
    """Serves ``envoy.service.ext_proc.v3.ExternalProcessor``.

    Args:
        router: What all exchanges share.
        metrics: Where the time of decisions is counted.
        limit: Most streams open at once; 0 for no limit.
    """

    def __init__(self, router: Router, metrics: Metrics, *, limit: int = 0) -> None:
        self._router = router
        self._metrics = metrics
        self._limit = limit

    async def Process(self, _requests: Any, context: Context) -> None:  # noqa: N802  # the RPC's name
        """One HTTP request, from its headers to the end of its response."""
        stats = self._router.stats
        if self._limit and stats.open >= self._limit:
            stats.refused += 1
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many open requests")
        exchange = Exchange(self._router, self._router.settings(context.invocation_metadata()))
        stream = Stream(context, exchange, self._router, self._metrics)
        stats.streams += 1
        stats.open += 1
        try:
            await stream.run()
        except grpc.aio.BaseError:
            pass  # Envoy left while we read or wrote: as normal an end as any
        finally:
            stats.open -= 1
            try:
                await stream.stop()
            finally:
                exchange.end()


class Stream:
    """Carries messages between Envoy and a session, and events between a session and an exchange.

    The read is awaited as it is: a timer, not a timeout around the read, watches for a body that
    stalls, since a cancelled read would end the stream.
    """

    def __init__(
        self, context: Context, exchange: Exchange, router: Router, metrics: Metrics
    ) -> None:
        self._context = context
        self._exchange = exchange
        self._router = router
        self._metrics = metrics
        self._session = Session(readable=exchange.readable, window=exchange.window)
        self._idling: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Serve until Envoy ends the stream. A cancelled stream is a normal end."""
        loop = asyncio.get_running_loop()
        while True:
            patience = self._session.patience
            timer = loop.call_later(patience, self._idle) if patience is not None else None
            try:
                message = await self._context.read()
            finally:
                if timer is not None:
                    timer.cancel()
            if message is grpc.aio.EOF:
                return
            if self._idling is not None:  # its replies come before those to this message
                await self._idling
                self._idling = None
            await self._guard(self._session.receive, message)

    async def stop(self) -> None:
        """Leave nothing running."""
        if self._idling is not None:
            self._idling.cancel()
            await asyncio.gather(self._idling, return_exceptions=True)

    def _idle(self) -> None:
        self._idling = asyncio.get_running_loop().create_task(self._guard(self._session.idle))

    async def _guard(self, step: Any, *args: Any) -> None:
        """Take a step. A fault of our own costs the choice, never the request."""
        try:
            await self._handle(step(*args))
        except grpc.aio.BaseError:
            raise
        except Exception as fault:  # noqa: BLE001  # whatever it is, Envoy must get its answers
            self._router.fault(fault)
            await self._handle(self._session.abandon())

    async def _handle(self, events: list[Event]) -> None:
        for event in events:
            match event:
                case Reply(message):
                    await self._context.write(message)
                case DecisionDue():
                    await self._decide(event)
                case Responded():
                    self._exchange.responded(event)
                case ResponseEnded():
                    self._exchange.end()
                case Violation(what):
                    self._router.stats.violations[what] += 1

    async def _decide(self, due: DecisionDue) -> None:
        start = perf_counter()
        try:
            choice = await self._exchange.choose(due)
        except Exception:
            self._exchange.failed()
            raise
        replies = self._session.decide(choice)
        if not replies:
            self._exchange.moot()
        self._metrics.decision_seconds.observe(perf_counter() - start)
        await self._handle(replies)
