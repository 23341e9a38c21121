"""Clients that mean harm, on the real Envoy, in every body mode.

Whatever they send, a replica gets it byte for byte and answers it, the router stays up with bounded
memory, and no word of it is in a log.
"""

import asyncio
import re
import uuid
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h2.config
import h2.connection
import h2.events
import pytest
import pytest_asyncio
from redis.asyncio import Redis

from extproc.affinity.keys import PoolKeys
from extproc.lab.envoy_config import LONGEST_BODY, ListenerConfig
from extproc.lab.stack import LOOPBACK, LocalStack, ReplicaOptions
from extproc.processing import DESTINATION, EXPLAIN, BodyMode
from tests.envoy.clients import JSON, Answer, Http1, digest, http1, http2
from tests.envoy.conftest import MODES, pool, received, settled
from tests.envoy.test_bodies import HELD_PARTS
from tests.envoy.versions import envoy_version

pytestmark = pytest.mark.asyncio(loop_scope="module")

PATH = "/v1/messages"
"""The simulated replicas answer it with 200 whatever comes."""
TENANT = "x-tenant"
ASK = (EXPLAIN, "1")
TEXT = "Nobody may read this in a log. "
"""In every body and header value here."""
POOL = "}:state{other}*\\"
"""Of one listener: a name that would be another pool's key, if it were not encoded."""
MEMORY = 384 << 20
"""Bytes that a router may have at once while all this comes, which is twenty times as much."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def hostile(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LocalStack]:
    folder = tmp_path_factory.mktemp("hostile")
    own = {"x-prefix-tenant-header": TENANT, "x-prefix-explain": "on"}
    listeners = [
        ListenerConfig(
            str(mode),
            body_mode=mode,
            metadata={"x-prefix-pool": str(mode), **own},
            retry=False,
            buffer_limit=4 << 20,
            message_timeout_s=10.0,
        )
        for mode in MODES
    ]
    listeners.append(ListenerConfig(POOL, metadata={"x-prefix-pool": POOL, **own}))
    async with LocalStack(
        listeners,
        replicas=3,
        replica_options=ReplicaOptions(speed=float("inf"), per_process=3),
        router_arguments=[
            "--log-level",
            "debug",
            "--decision-log",
            str(folder / "decisions"),
            "--store-deadline-ms",
            "1000",
        ],
        folder=folder,
    ) as started:
        yield started


def peak(stack: LocalStack) -> int:
    """Most bytes that the router has had in memory at once."""
    status = Path(f"/proc/{stack.routers[0].pid}/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) << 10


async def reasons(
    stack: LocalStack, listener: str, body: bytes, *headers: tuple[str, str]
) -> list[str]:
    """Send a body until its start is known; why it went where it went, each reason once.

    A machine that is busy may hold a body up so long that what had come is another prompt.
    """
    found: list[str] = []
    while len(found) < 5 and "matched" not in found:
        answer = await http1(
            stack.port(listener),
            [body],
            path=PATH,
            headers=[JSON, ASK, *headers],
            length=len(body),
        )
        assert (answer.status, answer.received) == (200, digest(body)), answer.body[:200]
        found.append(why(answer))
    return list(dict.fromkeys(found))


def why(answer: Answer) -> str:
    return answer.headers[EXPLAIN].partition(";")[0]


HEAD = b'{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"%b"},{"role":"user",'
TAIL = b'"content":"b"}]'


@dataclass(frozen=True)
class Case:
    """A body that is hard to read.

    Attributes:
        behind: What follows a readable message.
        before: Comes before all.
        matched: Whether its start is known when it comes again.
    """

    behind: bytes
    before: bytes = b""
    matched: bool = True


def nested(opening: bytes, closing: bytes, depth: int) -> bytes:
    return TAIL + b',"x":' + opening * depth + b"1" + closing * depth + b"}"


CASES = {
    "arrays in arrays": Case(nested(b"[", b"]", 200_000)),
    "objects in objects": Case(nested(b'{"a":', b"}", 200_000)),
    "open arrays": Case(TAIL + b',"x":' + b"[" * 1_000_000),
    "a million keys": Case(
        TAIL + b"".join(b',"%d":%d' % (number, number) for number in range(1_000_000)) + b"}"
    ),
    "a number of a million digits": Case(TAIL + b',"temperature":' + b"9" * 1_000_000 + b"}"),
    "huge exponents": Case(TAIL + b',"temperature":1e999999999,"top_p":-1E-999999999}'),
    "NaN and infinity": Case(TAIL + b',"temperature":NaN,"top_p":-Infinity}'),
    "ten thousand times the same key": Case(TAIL + b',"model":"n"' * 10_000 + b"}"),
    "a byte order mark": Case(TAIL + b"}", before=b"\xef\xbb\xbf"),
    "a lone surrogate": Case(b'"content":"\\ud83d"}]}'),
    "an encoded surrogate": Case(b'"content":"\xed\xa0\xbd"}]}'),
    "not UTF-8": Case(b'"content":"\xff"}]}'),
    "NUL, escaped": Case(b'"content":"\\u0000"}]}'),
    "NUL, plain": Case(b'"content":"\x00"}]}'),
    "NUL before all": Case(TAIL + b"}", before=b"\x00", matched=False),
    "UTF-16": Case(TAIL + b"}", before=b"\xff\xfe", matched=False),
    "half a body": Case(b'"content":"b'),
    "two bodies": Case(TAIL + b"}" + b'{"model":"m"}'),
}


@pytest.mark.parametrize("name", CASES)
async def test_a_body_that_is_hard_to_read(hostile: LocalStack, name: str) -> None:
    case = CASES[name]
    for mode in MODES:
        body = case.before + HEAD % (name.encode() + TEXT.encode() * 40) + case.behind
        if len(body) > 2_000_000 and mode in HELD_PARTS and envoy_version() < (1, 37):
            continue  # what is over the buffer limit, see test_doubling.py
        found = ["cold", "matched"] if case.matched else ["no_prompt"]
        assert await reasons(hostile, mode, body, (TENANT, TEXT)) == found


async def test_ten_thousand_chunks(hostile: LocalStack) -> None:
    body = HEAD % (b"ten thousand chunks" + TEXT.encode() * 10_000) + TAIL + b"}"
    step = -(-len(body) // 10_000)
    pieces = [body[at : at + step] for at in range(0, len(body), step)]
    assert len(pieces) > 9_000
    for mode in MODES:
        found = [
            await http2(hostile.port(mode), pieces, path=PATH, headers=[JSON, ASK])
            for _ in range(2)
        ]
        assert [(each.status, each.received) for each in found] == [(200, digest(body))] * 2
        if mode in HELD_PARTS:  # others may have been decided on what had come
            assert list(map(why, found)) == ["cold", "matched"]


async def test_a_body_of_100_mb(hostile: LocalStack) -> None:
    body = HEAD % (TEXT.encode() * (100_000_000 // len(TEXT))) + TAIL + b"}"
    for mode in MODES:
        if mode in HELD_PARTS and envoy_version() < (1, 37):
            continue
        answer = await http1(hostile.port(mode), [body], path=PATH, length=len(body))
        if mode is BodyMode.BUFFERED:
            assert len(body) > LONGEST_BODY
            assert answer.status == 413
        else:
            assert (answer.status, answer.received) == (200, digest(body))


async def test_a_hundred_uploads_that_drip(hostile: LocalStack) -> None:
    """Those who send little by little hold up nobody, and are served at their end."""
    for mode in MODES:
        held = asyncio.Event()

        async def drip(number: int, mode: BodyMode = mode, held: asyncio.Event = held) -> Answer:
            body = drops(number)
            async with Http1(hostile.port(mode)) as client:
                await client.head("POST", PATH, [JSON, length(body)])
                for at in range(20):
                    await client.send(body[at : at + 1])
                    await asyncio.sleep(0.02)
                await held.wait()
                await client.send(body[20:])
                return await client.answer()

        async with asyncio.timeout(30), asyncio.TaskGroup() as group:
            dripping = [group.create_task(drip(number)) for number in range(100)]
            for number in range(100, 110):
                assert (await reasons(hostile, mode, drops(number)))[-1] == "matched"
            assert not any(each.done() for each in dripping)
            held.set()
        for number, each in enumerate(dripping):
            assert (each.result().status, each.result().received) == (200, digest(drops(number)))
        await settled(hostile, mode)


def drops(number: int) -> bytes:
    return HEAD % (TEXT.encode() * 20 + b"%d" % number) + TAIL + b"}"


def length(body: bytes) -> tuple[str, str]:
    return "content-length", str(len(body))


async def test_a_header_of_59_kb_passes_and_envoy_refuses_more(hostile: LocalStack) -> None:
    body = drops(0)
    long = (TEXT * 3_000)[:59_000]
    for mode in MODES:
        for name in (TENANT, "x-prefix-aware-id", "cookie"):
            assert (await reasons(hostile, mode, body, (name, long)))[-1] == "matched"
        before = await pool(hostile, mode)
        more = [JSON, (TENANT, long + TEXT * 100)]
        refused = await http1(hostile.port(mode), [body], headers=more, length=len(body))
        assert refused.status in (431, 0)  # 0: reset, since not all had been read
        assert (await pool(hostile, mode))["decisions"] == before["decisions"]


ENDS: dict[str, list[str]] = {
    "a\rb": ["ab"],
    "a\nb": [],
    "a\r\nb": [],
    "a\r\n b": ["a b"],
    "a\x00b": [],
    f"a\n{DESTINATION}: 127.0.0.1:1": ["a"],
    f"a\r\n{DESTINATION}: 127.0.0.1:1": ["a"],
}
"""Header values with line ends, and what comes of them behind Envoy over HTTP/1.1, if anything."""


@pytest.mark.parametrize("value", ENDS)
async def test_no_line_end_in_a_header_value_comes_past_envoy(
    hostile: LocalStack, value: str
) -> None:
    path = f"/v1/messages/{uuid.uuid4().hex}"
    port = hostile.port(BodyMode.BUFFERED_PARTIAL)
    answer = await http1(port, [b"{}"], path=path, headers=[JSON, (TENANT, value)], length=2)
    assert await unchecked(port, path, [JSON, (TENANT, value)]) == 0
    came = [dict(entry["headers"]) for entry in await received(hostile, path)]
    assert [each[TENANT] for each in came] == ENDS[value]
    assert bool(answer.replica) == bool(came)
    assert all(each[DESTINATION].startswith(answer.replica) for each in came)


async def unchecked(port: int, path: str, headers: Sequence[tuple[str, str]]) -> int:
    """The status of a request over HTTP/2 whose headers nobody checked; 0 if it was reset."""
    machine = h2.connection.H2Connection(
        h2.config.H2Configuration(validate_outbound_headers=False, normalize_outbound_headers=False)
    )
    machine.initiate_connection()
    pseudo = [(":method", "POST"), (":path", path), (":scheme", "http")]
    machine.send_headers(1, [*pseudo, (":authority", "test"), *headers], end_stream=True)
    async with asyncio.timeout(30):
        reader, writer = await asyncio.open_connection(LOOPBACK, port)
        writer.write(machine.data_to_send())
        try:
            while data := await reader.read(1 << 16):
                for event in machine.receive_data(data):
                    match event:
                        case h2.events.ResponseReceived(headers=found):
                            return int(dict(found or ())[b":status"])
                        case h2.events.StreamReset() | h2.events.ConnectionTerminated():
                            return 0
        finally:
            writer.close()
    return 0


TENANTS = [
    "",
    "}:state",
    "{" + POOL + "}",
    "*",
    "%7D",
    "a:b",
    "../../x",
    "FLUSHALL",
    "$(id)",
    "' OR 1=1 --",
    "\xe4\xf6",
]


async def test_tenants_and_pools_reach_no_keys_but_their_own(hostile: LocalStack) -> None:
    client: Any = Redis.from_url(hostile.store_url)
    try:
        before = set(await client.keys("*"))
        for tenant in TENANTS:  # what another has sent is not to be seen
            assert await reasons(hostile, POOL, drops(7), (TENANT, tenant)) == ["cold", "matched"]
        await settled(hostile, POOL)
        made = set(await client.keys("*")) - before
        own = PoolKeys(POOL).state.removesuffix(b"state")
        assert len(made) > len(TENANTS)
        assert all(key.startswith(own) for key in made)
        assert all([await client.ttl(key) > 0 for key in made])
    finally:
        await client.aclose()


async def test_the_router_is_well_and_has_told_nothing(hostile: LocalStack) -> None:
    """Comes last: of all that was sent above."""
    for name in [*MODES, POOL]:
        await settled(hostile, name)
    hostile.check()
    logs = [*hostile.folder.glob("router-*.log"), *hostile.folder.glob("decisions*")]
    said = "\n".join(log.read_text(errors="replace") for log in logs)
    assert said.count("matched") > 100  # it does log
    assert not [line for line in said.splitlines() if TEXT[:20] in line]
    assert "Traceback" not in said
    assert peak(hostile) < MEMORY
