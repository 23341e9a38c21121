import asyncio
import itertools
import json
from collections.abc import AsyncIterator

import aiohttp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extproc.lab.overhead.client import Load, LoadError, run
from extproc.lab.overhead.echo import Body, Echo

CHUNKED = b"5\r\nhello\r\n3;name=value\r\n\r\n\r\r\n0\r\ntrailer: x\r\n\r\n"


@pytest.fixture
async def port() -> AsyncIterator[int]:
    server = await asyncio.get_running_loop().create_server(Echo, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    ends = sorted({min(cut, len(data)) for cut in cuts} | {0, len(data)})
    return [data[start:end] for start, end in itertools.pairwise(ends)]


@settings(max_examples=60, deadline=None)
@given(cuts=st.lists(st.integers(0, 60), max_size=12), chunked=st.booleans())
def test_a_bodys_end_is_found_wherever_it_is_cut(cuts: list[int], chunked: bool) -> None:
    sent = CHUNKED if chunked else b"0123456789"
    body = Body(None if chunked else len(sent))
    rest = b""
    for piece in pieces(sent + b"next", cuts):
        if body.ended:
            rest += piece
        else:
            rest += body.feed(piece)
    assert body.ended
    assert rest == b"next"


async def test_a_replica_answers_bodies_of_both_kinds_on_one_connection(port: int) -> None:
    connector = aiohttp.TCPConnector(limit=1)
    async with aiohttp.ClientSession(f"http://127.0.0.1:{port}", connector=connector) as session:

        async def chunks() -> AsyncIterator[bytes]:
            for _ in range(3):
                yield b"x" * 70_000

        for body in (b"{}", chunks(), b"y" * 300_000):
            async with session.post("/v1/chat/completions", data=body) as response:
                assert response.status == 200
                answer = await response.json()
                assert answer["choices"][0]["message"]["role"] == "assistant"
        async with session.post("/v1/completions/render?x=1", data=b"{}") as response:
            assert (await response.json())[0]["prompt_token_ids"]
        async with session.get("/v1/models") as response:
            assert (await response.json())["data"][0]["id"] == answer["model"]


async def _serve(answer: bytes, requests: list[bytes]) -> tuple[asyncio.Server, int]:
    """A server that keeps what it gets and gives one answer to each request with content-length."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
                requests.append(await reader.readexactly(length))
                writer.write(answer)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    return server, server.sockets[0].getsockname()[1]


async def test_every_request_is_sent_whole_and_with_its_own_number() -> None:
    requests: list[bytes] = []
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
    server, port = await _serve(answer, requests)
    load = Load(port, requests=20, clients=4, parts=(b'{"id":"', b'"}' + b" " * 400_000))
    async with server:
        times = await asyncio.to_thread(run, load, iter(range(100)))
    assert len(times) == 20
    assert all(seconds > 0 for seconds in times)
    assert sorted(json.loads(request)["id"] for request in requests) == [
        f"{number:012d}" for number in range(20)
    ]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n", "503"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", "chunked"),
    ],
)
async def test_a_bad_answer_ends_the_load(answer: bytes, message: str) -> None:
    server, port = await _serve(answer, [])
    async with server:
        with pytest.raises(LoadError, match=message):
            await asyncio.to_thread(
                run, Load(port, requests=1, clients=1, parts=(b"", b"")), iter([1])
            )


async def test_silence_ends_the_load() -> None:
    server, port = await _serve(b"", [])
    load = Load(port, requests=1, clients=1, parts=(b"", b""), timeout_s=0.05)
    async with server:
        with pytest.raises(LoadError, match="no answer"):
            await asyncio.to_thread(run, load, iter([1]))


async def test_fewer_requests_than_clients_are_sent_once_each(port: int) -> None:
    load = Load(port, requests=3, clients=8, parts=(b"{", b"}"))
    assert len(await asyncio.to_thread(run, load, iter(range(10)))) == 3
