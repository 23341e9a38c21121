"""HTTP clients that stall, leave, send trailers and lie, as test cases need it."""

import asyncio
import contextlib
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

import h2.config
import h2.connection
import h2.events

LOOPBACK = "127.0.0.1"
JSON = ("content-type", "application/json")
DEADLINE_S = 30.0

Headers = Sequence[tuple[str, str]]
Pieces = Iterable[bytes | float]
"""A body: bytes to send, and seconds to wait."""


@dataclass(slots=True)
class Answer:
    """A response, as far as it came.

    Attributes:
        status: 0 where none came.
        headers: Names in lower case; of several values the last.
        body: Without any framing.
        reset: Whether the stream or connection was reset instead of ending.
    """

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    reset: bool = False

    @property
    def replica(self) -> str:
        """Name of the replica that answered."""
        return self.headers.get("x-replica", "")

    @property
    def received(self) -> str:
        """Digest of the body that the replica got."""
        return self.headers.get("x-body-sha256", "")


def digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


class Http1:
    """One HTTP/1.1 connection for one request."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def __aenter__(self) -> Self:
        self.reader, self._writer = await asyncio.open_connection(LOOPBACK, self._port)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.leave()

    def leave(self) -> None:
        """Go away at once."""
        self._writer.transport.abort()

    async def head(self, method: str, path: str, headers: Headers) -> None:
        lines = [f"{method} {path} HTTP/1.1", "host: test", "connection: close"]
        lines += [f"{name}: {value}" for name, value in headers]
        await self.send("\r\n".join([*lines, "", ""]).encode())

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def body(self, pieces: Pieces, *, chunked: bool) -> None:
        for piece in pieces:
            if isinstance(piece, float):
                await asyncio.sleep(piece)
            elif chunked and piece:
                await self.send(b"%x\r\n%b\r\n" % (len(piece), piece))
            elif piece:
                await self.send(piece)
        if chunked:
            await self.send(b"0\r\n\r\n")

    async def answer(self) -> Answer:
        """Read to the end of the connection, which is the response's end."""
        answer = Answer()
        try:
            while data := await self.reader.read(1 << 16):
                answer.body += data
        except ConnectionError:
            answer.reset = True
        head, _, answer.body = answer.body.partition(b"\r\n\r\n")
        status, *lines = head.decode().split("\r\n")
        if status:
            answer.status = int(status.split()[1])
        answer.headers = {
            name.lower(): value.strip()
            for name, _, value in (line.partition(":") for line in lines)
        }
        return answer


async def http1(
    port: int,
    pieces: Pieces = (),
    *,
    method: str = "POST",
    path: str = "/v1/chat/completions",
    headers: Headers = (JSON,),
    length: int | None = None,
) -> Answer:
    """One request over HTTP/1.1.

    Args:
        port: On loopback.
        pieces: The body.
        method: GET sends no body.
        path: The target.
        headers: Beside those of framing.
        length: Content-length to declare; None sends chunks.
    """
    framing = (
        ("transfer-encoding", "chunked") if length is None else ("content-length", str(length))
    )
    async with asyncio.timeout(DEADLINE_S), Http1(port) as connection:
        if method == "GET":
            await connection.head(method, path, headers)
            return await connection.answer()
        await connection.head(method, path, [*headers, framing])
        sending = asyncio.create_task(connection.body(pieces, chunked=length is None))
        try:
            return await connection.answer()  # Envoy may answer before it has the whole body
        finally:
            sending.cancel()
            await asyncio.wait({sending})
            if not sending.cancelled():
                sending.exception()  # the connection may be gone: a refused body


async def http2(
    port: int,
    pieces: Pieces = (),
    *,
    path: str = "/v1/chat/completions",
    headers: Headers = (JSON,),
    trailers: Headers = (),
) -> Answer:
    """One request over HTTP/2 with prior knowledge, with trailers at its end if there are any."""
    async with asyncio.timeout(DEADLINE_S):
        reader, writer = await asyncio.open_connection(LOOPBACK, port)
        try:
            return await _Http2(reader, writer).request(path, headers, pieces, trailers)
        finally:
            writer.close()


class _Http2:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._machine = h2.connection.H2Connection(
            h2.config.H2Configuration(client_side=True, header_encoding="utf-8")
        )
        self._answer = Answer()
        self._heard = asyncio.Event()

    async def request(
        self, path: str, headers: Headers, pieces: Pieces, trailers: Headers
    ) -> Answer:
        self._machine.initiate_connection()
        pseudo = [(":method", "POST"), (":path", path), (":scheme", "http"), (":authority", "test")]
        self._machine.send_headers(1, [*pseudo, *headers])
        await self._flush()
        sending = asyncio.create_task(self._send(pieces, trailers))
        try:
            await self._receive()
        finally:
            sending.cancel()
            await asyncio.wait({sending})
        if not sending.cancelled():
            sending.result()
        return self._answer

    async def _send(self, pieces: Pieces, trailers: Headers) -> None:
        for piece in pieces:
            if isinstance(piece, float):
                await asyncio.sleep(piece)
                continue
            rest = memoryview(piece)
            while rest:
                room = min(
                    self._machine.local_flow_control_window(1),
                    self._machine.max_outbound_frame_size,
                )
                if room <= 0:
                    self._heard.clear()
                    await self._heard.wait()
                    continue
                self._machine.send_data(1, bytes(rest[:room]))
                rest = rest[room:]
                await self._flush()
        if trailers:
            self._machine.send_headers(1, trailers, end_stream=True)
        else:
            self._machine.end_stream(1)
        await self._flush()

    async def _receive(self) -> None:
        while data := await self._reader.read(1 << 16):
            for event in self._machine.receive_data(data):
                match event:
                    case h2.events.ResponseReceived(headers=headers):
                        self._answer.headers = {
                            str(name): str(value) for name, value in headers or ()
                        }
                        self._answer.status = int(self._answer.headers[":status"])
                    case h2.events.DataReceived(data=part, flow_controlled_length=length):
                        self._answer.body += part or b""
                        self._machine.acknowledge_received_data(length or 0, 1)
                    case h2.events.StreamEnded():
                        return
                    case h2.events.StreamReset():
                        self._answer.reset = True
                        return
            self._heard.set()
            await self._flush()

    async def _flush(self) -> None:
        self._writer.write(self._machine.data_to_send())
        await self._writer.drain()


async def http2_resets(port: int, count: int, *, at_once: int = 20) -> int:
    """Requests over HTTP/2 that are reset: a third each with half a body, a whole one, and none.

    Args:
        port: On loopback.
        count: How many.
        at_once: On one connection.

    Returns:
        How many were reset. Envoy closes connections that reset too much; then the next is used.
    """
    done = 0
    pseudo = [(":method", "POST"), (":path", "/v1/chat/completions"), (":scheme", "http")]
    head = [*pseudo, (":authority", "test"), JSON]
    body = b'{"model": "m", "messages": [{"role": "user", "content": "' + b"x" * 2000 + b'"}]}'
    while done < count:
        async with asyncio.timeout(DEADLINE_S):
            _, writer = await asyncio.open_connection(LOOPBACK, port)
            machine = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
            machine.initiate_connection()
            streams = range(1, 2 * min(at_once, count - done), 2)
            for stream in streams:
                machine.send_headers(stream, head)
                part = stream // 2 % 3
                if part:
                    machine.send_data(stream, body[: len(body) * part // 2], end_stream=part == 2)
            writer.write(machine.data_to_send())
            await writer.drain()
            await asyncio.sleep(0.05)  # some are decided by now
            for stream in streams:
                machine.reset_stream(stream)
            writer.write(machine.data_to_send())
            with contextlib.suppress(ConnectionError):
                await writer.drain()
            writer.close()
            done += len(streams)
    return done
