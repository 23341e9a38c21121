"""Replicas that answer at once: any request is read to its end, and gets the same short answer.

They take so little time that what is measured is what stands before them.

Run them with ``python -m extproc.lab.overhead.echo --listen HOST:PORT ...``.
"""

import asyncio
import gc
import json
import signal
from typing import Annotated

import typer

MODEL = "echo"
_COMPLETION = {
    "id": "echo",
    "object": "chat.completion",
    "created": 0,
    "model": MODEL,
    "choices": [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "."},
            "text": ".",
            "finish_reason": "stop",
        }
    ],
    "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
}
# What routers ask their workers beside completions. ``render`` tokenizes a prompt in vLLM.
_PAGES = {
    "/v1/models": {
        "object": "list",
        "data": [{"id": MODEL, "object": "model", "created": 0, "owned_by": "echo"}],
    },
    "/get_model_info": {"model_path": MODEL, "served_model_name": MODEL, "is_generation": True},
    "/get_server_info": {"model_path": MODEL, "served_model_name": MODEL, "version": "0"},
    "/v1/chat/completions/render": [[], [{"prompt_token_ids": [1, 2, 3, 4]}]],
    "/v1/completions/render": [{"prompt_token_ids": [1, 2, 3, 4]}],
}
_PAGES["/model_info"] = _PAGES["/get_model_info"]
_PAGES["/server_info"] = _PAGES["/get_server_info"]

_END_OF_HEAD = b"\r\n\r\n"


def _answer(body: object) -> bytes:
    text = json.dumps(body).encode()
    head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
    return f"{head}content-length: {len(text)}\r\n\r\n".encode() + text


_DEFAULT = _answer(_COMPLETION)
_ANSWERS = {path.encode(): _answer(body) for path, body in _PAGES.items()}


class Body:
    """Finds the end of an HTTP/1.1 body without keeping it.

    Args:
        length: Of the whole body in bytes; None where it is chunked.
    """

    def __init__(self, length: int | None) -> None:
        self._left = length or 0
        self._chunked = length is None
        self._ending = False
        self._kept = b""
        self.ended = length == 0

    def feed(self, data: bytes) -> bytes:
        """Take bytes in; returns those behind the body's end."""
        while data and not self.ended:
            taken = min(self._left, len(data))
            self._left -= taken
            data = data[taken:]
            if not self._chunked:
                self.ended = not self._left
            elif data:
                data = self._next_chunk(data)
        return data

    def _next_chunk(self, data: bytes) -> bytes:
        line, newline, rest = (self._kept + data).partition(b"\r\n")
        if not newline:
            self._kept = line
            return b""
        self._kept = b""
        if self._ending:  # a trailer, or the empty line behind them
            self.ended = not line
        else:
            size = int(line.partition(b";")[0], 16)
            self._ending = not size
            self._left = size + 2 if size else 0  # with the line break behind the chunk
        return rest


class Echo(asyncio.Protocol):
    """One connection: requests one after the other."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._head = b""
        self._body: Body | None = None
        self._path = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Answer each request as its last byte comes."""
        while data:
            if self._body is None:
                head, end, data = (self._head + data).partition(_END_OF_HEAD)
                if not end:
                    self._head = head
                    return
                self._open(head)
            assert self._body is not None
            data = self._body.feed(data)
            if self._body.ended:
                self._body = None
                assert self._transport is not None
                self._transport.write(_ANSWERS.get(self._path, _DEFAULT))

    def _open(self, head: bytes) -> None:
        self._head = b""
        line, _, headers = head.partition(b"\r\n")
        self._path = line.split(b" ")[1].partition(b"?")[0]
        length: int | None = 0
        for header in headers.lower().split(b"\r\n"):
            name, _, value = header.partition(b":")
            if name == b"content-length":
                length = int(value)
            elif name == b"transfer-encoding":
                length = None
        self._body = Body(length)


async def serve(addresses: list[str]) -> None:
    """Serve on all addresses until SIGTERM or SIGINT."""
    loop = asyncio.get_running_loop()
    for address in addresses:
        host, _, port = address.rpartition(":")
        await loop.create_server(Echo, host.strip("[]"), int(port), backlog=1024)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    gc.freeze()
    await stop.wait()


def main(
    listen: Annotated[list[str], typer.Option(help="HOST:PORT; may be given several times.")],
) -> None:
    """Serve replicas that answer at once."""
    asyncio.run(serve(listen))


if __name__ == "__main__":
    typer.run(main)
