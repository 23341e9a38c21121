"""The service over gRPC, with Envoy's messages made by hand."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import pytest

from extproc.affinity import Reservation
from extproc.processing import DecisionDue
from extproc.routing import Decision, Reason
from extproc.server.exchange import Exchange
from extproc.server.stream import Processor
from tests.server.conftest import STATIC, Serve, Served
from tests.server.messages import (
    FULL_DUPLEX_STREAMED,
    GET,
    chat,
    destinations,
    facts,
    request_body,
    request_headers,
    response_headers,
    response_trailers,
)

LONG = "All work and no play makes a long prompt. " * 100
Reserve = Callable[[Reservation], Awaitable[Decision]]
FIRST = "10.0.0.1:80"


async def exchange(call: Any, *requests: Any) -> list[Any]:
    """Send messages that are owed one reply each."""
    replies = []
    for request in requests:
        await call.write(request)
        replies.append(await call.read())
    return replies


async def end(call: Any) -> None:
    await call.done_writing()
    assert await call.read() is grpc.aio.EOF


async def quiet(served: Served) -> None:
    """Wait until the server has seen the end of every stream."""
    while served.app.router.stats.open:
        await asyncio.sleep(0.01)


async def in_flight(served: Served) -> int:
    states = await served.app.store.snapshot("llm")
    return sum(state.in_flight for state in states.values())


async def test_one_request_from_headers_to_trailers(serve: Serve) -> None:
    served = await serve()
    call = served.open()

    replies = await exchange(call, request_headers(), request_body(chat(LONG)))
    ranked = destinations(replies)
    assert sorted(ranked) == ["10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80"]
    assert facts(replies)["reason"] == "cold"
    assert [reply.WhichOneof("response") for reply in replies] == [
        "request_headers",
        "request_body",
    ]
    assert await in_flight(served) == 1

    (reply,) = await exchange(call, response_headers(ranked[0]))
    assert reply.WhichOneof("response") == "response_headers"
    assert await in_flight(served) == 1

    await exchange(call, response_trailers())
    assert await in_flight(served) == 0
    await end(call)
    assert served.app.router.stats.streams == 1


async def test_the_end_of_the_stream_is_the_end_of_the_reservation(serve: Serve) -> None:
    served = await serve()
    ended, cancelled = served.open(), served.open()
    for call in (ended, cancelled):
        await exchange(call, request_headers(), request_body(chat(LONG)))
    assert await in_flight(served) == 2

    await end(ended)
    cancelled.cancel()
    await quiet(served)

    assert await in_flight(served) == 0
    assert not served.app.router.stats.errors


async def test_a_stream_cancelled_in_the_middle_of_its_decision(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = await serve()
    reached, store = asyncio.Event(), served.app.store
    reserve: Reserve = store.reserve

    async def slow(reservation: Reservation) -> Decision:
        decision = await reserve(reservation)
        reached.set()
        await asyncio.Event().wait()
        return decision

    monkeypatch.setattr(store, "reserve", slow)
    call = served.open()
    await call.write(request_headers(GET, end_of_stream=True))
    await reached.wait()
    assert await in_flight(served) == 1

    call.cancel()
    await quiet(served)

    assert await in_flight(served) == 0


async def test_a_body_that_stalls_is_decided_on_what_there_is(serve: Serve) -> None:
    served = await serve()
    call = served.open()
    await call.write(request_headers(mode=FULL_DUPLEX_STREAMED))
    body = chat(LONG * 10)
    await call.write(request_body(body[:40_000], end_of_stream=False))

    replies = [await call.read(), await call.read()]

    assert len(destinations(replies)) == 3
    assert replies[1].request_body.response.body_mutation.streamed_response.body == body[:40_000]
    await call.write(request_body(body[40_000:]))
    rest = await call.read()
    assert rest.request_body.response.body_mutation.streamed_response.body == body[40_000:]
    await end(call)


async def test_a_message_during_the_decision_on_a_stall_waits_for_its_turn(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = await serve()
    reached, go = asyncio.Event(), asyncio.Event()
    reserve: Reserve = served.app.store.reserve

    async def slow(reservation: Reservation) -> Decision:
        reached.set()
        await go.wait()
        return await reserve(reservation)

    monkeypatch.setattr(served.app.store, "reserve", slow)
    call = served.open()
    body = chat(LONG * 10)
    await call.write(request_headers(mode=FULL_DUPLEX_STREAMED))
    await call.write(request_body(body[:40_000], end_of_stream=False))
    await reached.wait()
    await call.write(request_body(body[40_000:]))
    await asyncio.sleep(0.05)
    go.set()

    replies = [await call.read() for _ in range(3)]

    assert len(destinations(replies)) == 3
    assert [reply.WhichOneof("response") for reply in replies] == [
        "request_headers",
        "request_body",
        "request_body",
    ]
    echoed = [
        reply.request_body.response.body_mutation.streamed_response.body for reply in replies[1:]
    ]
    assert b"".join(echoed) == body
    await end(call)


async def test_a_fault_of_ours_leaves_the_choice_to_envoy(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    served = await serve()

    async def broken(_self: Exchange, _due: DecisionDue) -> None:
        raise KeyError("secret prompt")

    monkeypatch.setattr(Exchange, "choose", broken)
    call = served.open()

    replies = await exchange(call, request_headers(), request_body(chat(LONG)))
    assert destinations(replies) == []
    await exchange(call, response_headers(FIRST), response_trailers())
    await end(call)

    assert served.app.router.stats.errors == {"KeyError": 1}
    log = capsys.readouterr()
    assert "request left to Envoy" in log.out + log.err
    assert "secret prompt" not in log.out + log.err


async def test_a_fault_after_the_pool_is_known_counts_as_a_fallback(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = await serve()

    async def broken(_reservation: Reservation) -> Decision:
        raise RuntimeError

    monkeypatch.setattr(served.app.store, "reserve", broken)
    call = served.open()

    replies = await exchange(call, request_headers(), request_body(chat(LONG)))
    await end(call)

    assert destinations(replies) == []
    assert served.app.router.stats.pools["llm"].reasons == {Reason.FALLBACK: 1}


class Gone:
    """A context whose client has left when the first reply is written."""

    def __init__(self, *requests: Any) -> None:
        self._requests = list(requests)

    def invocation_metadata(self) -> Any:
        return STATIC

    async def read(self) -> Any:
        return self._requests.pop(0)

    async def write(self, message: Any) -> None:
        if message.HasField("request_body"):
            raise grpc.aio.InternalError("the call is gone")


async def test_a_client_that_left_before_a_reply_is_a_normal_end(serve: Serve) -> None:
    app = (await serve()).app
    context: Any = Gone(request_headers(), request_body(chat(LONG)))

    await Processor(app.router, app.metrics).Process(None, context)

    states = await app.store.snapshot("llm")
    assert [state.in_flight for state in states.values()] == [0, 0, 0]
    assert app.router.stats.open == 0
    assert not app.router.stats.errors


async def test_settings_differ_from_stream_to_stream(serve: Serve) -> None:
    served = await serve()
    calls = [served.open((("x-prefix-replicas", f"10.0.0.{n}:80"),)) for n in (4, 5)]

    found = [
        destinations(await exchange(call, request_headers(), request_body(chat(LONG))))
        for call in calls
    ]
    for call in calls:
        await end(call)

    assert found == [["10.0.0.4:80"], ["10.0.0.5:80"]]


async def test_violations_are_counted(serve: Serve) -> None:
    served = await serve()
    call = served.open()

    await call.write(response_trailers())
    await call.read()
    await end(call)

    assert served.app.router.stats.violations.total() >= 1


async def test_large_messages_are_taken(serve: Serve) -> None:
    served = await serve()
    call = served.open()

    replies = await exchange(call, request_headers(), request_body(chat("x" * 20_000_000)))
    await end(call)

    assert len(destinations(replies)) == 3


async def test_streams_over_the_limit_are_refused(serve: Serve) -> None:
    served = await serve(max_streams="1")
    taken = served.open()
    await exchange(taken, request_headers())

    refused = served.open()
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await exchange(refused, request_headers())

    assert error.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert served.app.router.stats.refused == 1
    await end(taken)


async def test_all_bodies_together_are_bounded_and_none_fails(serve: Serve) -> None:
    served = await serve(inspect_memory="1000")
    router = served.app.router

    replies = await exchange(call := served.open(), request_headers(), request_body(chat(LONG)))

    assert destinations(replies)  # by load
    assert router.stats.limits.reached == {"--inspect-memory": 1}
    await end(call)
    assert router.budget.used == 0


async def test_many_streams_at_once_leave_nothing_behind(serve: Serve) -> None:
    served = await serve()

    async def one(number: int) -> None:
        call = served.open()
        replies = await exchange(call, request_headers(), request_body(chat(f"{number}" + LONG)))
        if number % 3 == 0:
            call.cancel()
            return
        await exchange(call, response_headers(destinations(replies)[0]))
        if number % 3 == 1:
            call.cancel()
            return
        await exchange(call, response_trailers())
        await end(call)

    await asyncio.gather(*(one(number) for number in range(60)))
    await quiet(served)

    states = await served.app.store.snapshot("llm")
    assert [(state.in_flight, state.pending_tokens) for state in states.values()] == [(0, 0)] * 3
    assert served.app.router.stats.streams == 60
