"""The simulated replica as an HTTP server."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from itertools import count
from typing import Any

from aiohttp import WSMsgType, web

from extproc.lab.replica.cache import BYTES_PER_TOKEN, BlockCache, chain_hashes
from extproc.lab.replica.driver import EngineDriver
from extproc.lab.replica.engine import Engine
from extproc.lab.replica.latency import DEFAULT_PROFILE, PROFILES
from extproc.lab.replica.metrics import ReplicaMetrics
from extproc.lab.replica.openai import (
    BadRequestError,
    Generation,
    object_name,
    output_bytes,
    prompt_tokens,
    read_generation,
    stream_choice,
    usage,
    whole_choice,
)
from extproc.lab.replica.request import Output
from extproc.lab.replica.requestlog import ReceivedRequest, RequestLog
from extproc.prompt.compression import coding_of, unpack, unpacks

_MOST_BYTES = 64 * 1024 * 1024
"""Most bytes of a compressed body to unpack."""

ENTRY = web.RequestKey("entry", ReceivedRequest)


@dataclass(frozen=True, slots=True)
class ReplicaSettings:
    """How a simulated replica is set up.

    Attributes:
        name: Sent as the response header ``x-replica``.
        model: Listed by ``/v1/models``; any model name is served.
        profile: A key of ``latency.PROFILES``.
        cache_tokens: Capacity of the prefix cache; 0 takes the profile's.
        max_sequences: Sequences that may run at once; 0 takes the profile's.
        batch_tokens: Tokens that one step may compute; 0 takes the profile's.
        max_model_len: The model's context in tokens, prompt and output together.
        truncate: Whether longer prompts are cut, so that bodies of any size can be sent, instead
            of refused as vLLM does.
        speed: How many times faster than the latency model; ``inf`` never waits.
    """

    name: str
    model: str = "llama-3.1-70b"
    profile: str = DEFAULT_PROFILE
    cache_tokens: int = 0
    max_sequences: int = 0
    batch_tokens: int = 0
    max_model_len: int = 131_072
    truncate: bool = True
    speed: float = 1.0


class Replica:
    """One simulated replica: ``application`` is what to serve.

    Paths: ``/v1/chat/completions``, ``/v1/completions``, ``/v1/models``, ``/health``, ``/metrics``,
    ``/reset_prefix_cache`` (POST, as in vLLM's development mode); ``/lab/requests`` (GET: what
    arrived, as ``requestlog`` describes; DELETE: forget it). An upgrade to WebSocket on any other
    path echoes frames; any other request is answered with its own method, path, size and sha256.

    Every response has ``x-replica``, and ``x-body-sha256`` where the whole body was read.
    """

    def __init__(self, settings: ReplicaSettings) -> None:
        profile = PROFILES[settings.profile]
        self.settings = settings
        self.engine = Engine(
            profile,
            BlockCache(settings.cache_tokens or profile.kv_tokens),
            max_sequences=settings.max_sequences,
            batch_tokens=settings.batch_tokens,
        )
        self.log = RequestLog()
        self._driver = EngineDriver(self.engine, speed=settings.speed)
        self._metrics = ReplicaMetrics(self.engine, settings.model)
        self._ids = count()
        self.application = self._application()

    def _application(self) -> web.Application:
        application = web.Application(middlewares=[self._record], client_max_size=2**40)
        application.router.add_get("/health", self._health)
        application.router.add_get("/metrics", self._show_metrics)
        application.router.add_get("/v1/models", self._models)
        application.router.add_post("/reset_prefix_cache", self._reset)
        application.router.add_get("/lab/requests", self._show_requests)
        application.router.add_delete("/lab/requests", self._forget_requests)
        application.router.add_post("/v1/chat/completions", self._chat)
        application.router.add_post("/v1/completions", self._completions)
        application.router.add_route("*", "/{path:.*}", self._echo)
        application.on_response_prepare.append(self._name_response)
        application.cleanup_ctx.append(self._drive)
        return application

    async def _drive(self, _: web.Application) -> AsyncIterator[None]:
        self._driver.start()
        yield
        await self._driver.stop()

    async def _name_response(self, request: web.Request, response: web.StreamResponse) -> None:
        response.headers["x-replica"] = self.settings.name
        entry = request.get(ENTRY)
        if entry is not None and entry.complete:
            response.headers["x-body-sha256"] = entry.sha256

    @web.middleware
    async def _record(
        self,
        request: web.Request,
        handler: Callable[[web.Request], Awaitable[web.StreamResponse]],
    ) -> web.StreamResponse:
        if request.path == "/lab/requests" or request.path in ("/health", "/metrics"):
            return await handler(request)
        entry = self.log.begin(request.method, request.raw_path, request.headers)
        request[ENTRY] = entry
        try:
            return await handler(request)
        except (ConnectionError, asyncio.CancelledError):
            entry.aborted = True
            raise

    async def _health(self, _: web.Request) -> web.Response:
        return web.Response()

    async def _show_metrics(self, _: web.Request) -> web.Response:
        return web.Response(
            body=self._metrics.render(),
            headers={"content-type": "text/plain; version=0.0.4; charset=utf-8"},
        )

    async def _models(self, _: web.Request) -> web.Response:
        model = {
            "id": self.settings.model,
            "object": "model",
            "owned_by": "lab",
            "max_model_len": self.settings.max_model_len,
        }
        return web.json_response({"object": "list", "data": [model]})

    async def _reset(self, _: web.Request) -> web.Response:
        self.engine.cache.clear()
        return web.Response()

    async def _show_requests(self, _: web.Request) -> web.Response:
        return web.json_response(self.log.as_json())

    async def _forget_requests(self, _: web.Request) -> web.Response:
        self.log.clear()
        return web.Response(status=204)

    async def _echo(self, request: web.Request) -> web.StreamResponse:
        if request.headers.get("upgrade", "").lower() == "websocket":
            return await self._echo_frames(request)
        entry = request[ENTRY]
        async for data in request.content.iter_any():
            entry.update(data)
        entry.complete = True
        return web.json_response(entry.as_json() | {"replica": self.settings.name})

    async def _echo_frames(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        async for message in socket:
            if message.type is WSMsgType.TEXT:
                await socket.send_str(message.data)
            elif message.type is WSMsgType.BINARY:
                await socket.send_bytes(message.data)
        return socket

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        return await self._generate(request, chat=True)

    async def _completions(self, request: web.Request) -> web.StreamResponse:
        return await self._generate(request, chat=False)

    async def _generate(self, request: web.Request, *, chat: bool) -> web.StreamResponse:
        arrived = time.monotonic()
        body = bytearray()
        entry = request[ENTRY]
        async for data in request.content.iter_any():
            entry.update(data)
            body += data
        entry.complete = True
        try:
            plain = _unpacked(bytes(body), request.headers.get("content-encoding", ""))
            generation = read_generation(plain, chat=chat)
            sequences = [self._sequence(generation, prompt) for prompt in generation.prompts]
        except BadRequestError as error:
            message = {"message": str(error), "type": "BadRequestError", "code": 400}
            return web.json_response({"error": message}, status=400)
        async with self._driver.generate(sequences) as outputs:
            answer = self._stream if generation.stream else self._answer
            prompt_total = sum(tokens for tokens, _, _ in sequences)
            return await answer(request, generation, outputs, prompt_total, arrived)

    def _sequence(self, generation: Generation, prompt: bytes) -> tuple[int, int, list[int]]:
        """Prompt tokens that the engine can run, output tokens, and the chain of hashes."""
        limit = min(self.settings.max_model_len, self.engine.max_request_tokens)
        room = limit - generation.output_tokens
        tokens = prompt_tokens(prompt)
        if tokens > room:
            if not self.settings.truncate or room < 1:
                raise BadRequestError(
                    f"This model's maximum context length is {limit} tokens, but the request asks "
                    f"for {tokens} prompt tokens and {generation.output_tokens} output tokens."
                )
            tokens = room
            prompt = prompt[: room * BYTES_PER_TOKEN]
        whole = prompt + output_bytes(generation.output_tokens)
        return tokens, generation.output_tokens, chain_hashes(whole, generation.salt)

    async def _answer(
        self,
        request: web.Request,
        generation: Generation,
        outputs: AsyncIterator[tuple[int, Output]],
        prompt_total: int,
        arrived: float,
    ) -> web.StreamResponse:
        cached = 0
        async for _, output in outputs:
            if output.index == 0:
                cached += output.cached_tokens
                self._metrics.observe_first_token(time.monotonic() - arrived)
        count_ = len(generation.prompts)
        fields = self._head(generation, chunk=False)
        fields["choices"] = [whole_choice(generation, index) for index in range(count_)]
        fields["usage"] = usage(prompt_total, cached, generation.output_tokens * count_)
        return web.json_response(fields)

    async def _stream(
        self,
        request: web.Request,
        generation: Generation,
        outputs: AsyncIterator[tuple[int, Output]],
        prompt_total: int,
        arrived: float,
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream; charset=utf-8"})
        await response.prepare(request)  # as vLLM: the head goes out before prefill
        head = self._head(generation, chunk=True)
        cached = generated = 0
        async for index, output in outputs:
            generated += 1
            if output.index == 0:
                cached += output.cached_tokens
                self._metrics.observe_first_token(time.monotonic() - arrived)
            choice = stream_choice(generation, index, output.index, finished=output.finished)
            await response.write(_event(head | {"choices": [choice]}))
        if generation.include_usage:
            total = usage(prompt_total, cached, generated)
            await response.write(_event(head | {"choices": [], "usage": total}))
        await response.write(b"data: [DONE]\n\n")
        await response.write_eof()
        return response

    def _head(self, generation: Generation, *, chunk: bool) -> dict[str, Any]:
        return {
            "id": f"{'chatcmpl' if generation.chat else 'cmpl'}-{next(self._ids)}",
            "object": object_name(generation, chunk=chunk),
            "created": int(time.time()),
            "model": generation.model or self.settings.model,
        }


def _unpacked(body: bytes, content_encoding: str) -> bytes:
    """The plain text of a body. An engine behind middleware that unpacks sees no other."""
    coding = coding_of(content_encoding)
    if not coding:
        return body
    if not unpacks(coding):
        raise BadRequestError(f"unsupported content-encoding: {coding}")
    return unpack(coding, body, _MOST_BYTES)


def _event(fields: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(fields, separators=(",", ":")).encode() + b"\n\n"
