"""The ext_proc service: one gRPC stream for each HTTP request."""

import asyncio
from collections.abc import Callable
from time import perf_counter
from typing import Any

import grpc
from envoy.service.ext_proc.v3 import external_processor_pb2_grpc as rpc
from google.protobuf.message import DecodeError

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
from extproc.server.tracing import Span

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
            stats.limits.hit("--max-streams", "Envoy routes what is more by itself")
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many open requests")
        metadata = context.invocation_metadata()
        tracer = self._router.tracer
        span = None if tracer is None else tracer.span(metadata or ())
        exchange = Exchange(self._router, self._router.settings(metadata), span)
        stream = Stream(context, exchange, self._router, self._metrics, span)
        stats.streams += 1
        stats.open += 1
        try:
            await stream.run()
        except grpc.aio.BaseError:
            pass  # Envoy left while we read or wrote: as normal an end as any
        except DecodeError:
            stats.violations["message that is none"] += 1
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "not a ProcessingRequest")
        finally:
            stats.open -= 1
            try:
                await stream.stop()
            finally:
                exchange.end()


class Stream:
    """Carries messages between Envoy and a session, and events between a session and an exchange.

    Messages are read and written by calls, with as few coroutines between them as can be: each
    takes its time at every wait. The read is awaited as it is: a timer, not a timeout around the
    read, watches for a body that stalls, since a cancelled read would end the stream.
    """

    __slots__ = (
        "_exchange",
        "_idling",
        "_metrics",
        "_read",
        "_router",
        "_session",
        "_span",
        "_write",
    )

    def __init__(
        self,
        context: Context,
        exchange: Exchange,
        router: Router,
        metrics: Metrics,
        span: Span | None,
    ) -> None:
        self._read = context.read
        self._write = context.write
        self._exchange = exchange
        self._router = router
        self._metrics = metrics
        self._span = span
        self._session = Session(
            readable=exchange.readable, window=exchange.window, budget=router.budget
        )
        self._idling: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Serve until Envoy ends the stream. A cancelled stream is a normal end."""
        read, session = self._read, self._session
        while True:
            patience = session.patience
            message = await (read() if patience is None else self._read_or_idle(patience))
            if message is grpc.aio.EOF:
                return
            if self._idling is not None:  # its replies come before those to this message
                await self._idling
                self._idling = None
            await self._take(session.receive, message)

    async def stop(self) -> None:
        """Leave nothing running, and nothing kept."""
        self._session.abandon()
        if self._idling is not None:
            self._idling.cancel()
            await asyncio.gather(self._idling, return_exceptions=True)

    async def _read_or_idle(self, patience: float) -> Any:
        timer = asyncio.get_running_loop().call_later(patience, self._idle)
        try:
            return await self._read()
        finally:
            timer.cancel()

    def _idle(self) -> None:
        self._idling = asyncio.get_running_loop().create_task(self._take(self._session.idle))

    async def _take(self, step: Callable[..., list[Event]], *args: Any) -> None:
        """Take a step of the session, and do what follows from it.

        A fault of our own costs the choice, never the request.
        """
        try:
            for event in step(*args):
                if isinstance(event, Reply):
                    await self._write(event.message)
                elif isinstance(event, DecisionDue):
                    for message in await self._decide(event):
                        await self._write(message)
                else:
                    self._note(event)
        except grpc.aio.BaseError:
            raise
        except Exception as fault:  # noqa: BLE001  # whatever it is, Envoy must get its answers
            self._router.fault(fault)
            for message in _messages(self._session.abandon()):
                await self._write(message)

    def _note(self, event: Event) -> None:
        match event:
            case Responded():
                self._exchange.responded(event)
            case ResponseEnded():
                self._exchange.end()
            case Violation(what):
                self._router.stats.violations[what] += 1

    async def _decide(self, due: DecisionDue) -> list[Any]:
        """The replies that bring the decision to Envoy."""
        start = perf_counter()
        if self._router.budget.denied:
            self._router.held_back()
        if self._span is not None:
            self._span.due(due.head)
        try:
            choice = await self._exchange.choose(due)
        except Exception:
            self._exchange.failed()
            raise
        finally:
            if self._span is not None:
                self._span.decided()
        messages = _messages(self._session.decide(choice))
        if not messages:
            self._exchange.moot()
        self._metrics.decision_seconds.observe(perf_counter() - start)
        return messages


def _messages(events: list[Event]) -> list[Any]:
    return [event.message for event in events if isinstance(event, Reply)]
