"""From random bytes to input, and what must hold for any of it. Nothing here needs the fuzzer."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from envoy.service.ext_proc.v3 import external_processor_pb2 as pb
from google.protobuf.message import DecodeError

from extproc.pool_settings import Parsed, pairs_of, parse
from extproc.processing import Choice, DecisionDue, Reply, Responded, ResponseEnded, Session
from extproc.processing.budget import Budget
from extproc.prompt import fingerprint, read_prompt
from extproc.prompt.model import Prompt, ToolsPlace, Unreadable
from extproc.settings import Settings, SettingsError, load
from tests.bodies import PATHS
from tests.processing.messages import (
    A,
    request_body,
    request_headers,
    request_trailers,
    response_body,
    response_headers,
    response_trailers,
)

API_PATHS = sorted({*PATHS.values(), "/", "/api/chat", "/api/generate", "/score", "/x"})
ENCODINGS = ("", "", "gzip", "deflate", "br", "zstd")
WINDOW = 4096


def prompt(data: bytes) -> None:
    """A body, whole or cut, to every API, packed or plain.

    Bytes: 1 path, 1 encoding, 1 flags; the rest is the body.
    """
    if len(data) < 3:
        return
    path = API_PATHS[data[0] % len(API_PATHS)]
    encoding, flags, body = ENCODINGS[data[1] % len(ENCODINGS)], data[2], data[3:]

    def read(text: bytes) -> Prompt | Unreadable:
        return read_prompt(
            path,
            "application/json",
            encoding,
            text,
            complete=flags % 2 == 0,
            session_field="user" if flags & 2 else "metadata.session_id",
            unpacked_limit=1 << 16,
            tools_place=ToolsPlace.AFTER_SYSTEM if flags & 4 else ToolsPlace.FIRST,
        )

    found = read(body)
    assert isinstance(found, Prompt | Unreadable)
    if isinstance(found, Unreadable):
        return
    # Escapes and canonical numbers may lengthen a text, media shorten it: but never without bound.
    assert len(found.content) <= 64 * ((1 << 16) + len(body))
    options: dict[str, Any] = {
        "bytes_per_token": 4.0,
        "media_tokens": 1024,
        "prefix_length": 4096,
        "aware_id": "",
        "total_bytes": None,
    }
    one = fingerprint(found, pool="p", tenant="a", **options)
    assert one == fingerprint(read_again(read(body)), pool="p", tenant="a", **options)
    other = fingerprint(found, pool="p", tenant="b", **options)
    assert not set(one.hashes) & set(other.hashes)
    assert one.tokens == tuple(sorted(one.tokens))


def read_again(found: Prompt | Unreadable) -> Prompt:
    """The same body gives a prompt again."""
    assert isinstance(found, Prompt)
    return found


def messages(data: bytes) -> None:
    """A stream of Envoy's messages, in any order, with garbage among them.

    Bytes: 1 body mode, 1 flags; then steps of 1 kind, 1 flags, 1 length, and so many bytes.
    """
    if len(data) < 2:
        return
    budget = Budget(WINDOW * 2 if data[1] & 2 else 0)
    machine = Session(readable=lambda _head: bool(data[1] & 1), window=WINDOW, budget=budget)
    asked: Counter[str] = Counter()
    events: list[Any] = []
    first = True
    for kind, flags, text in _steps(data[2:]):
        message = _message(kind, flags, text)
        if message is None:
            step: Callable[[], list[Any]] = (
                machine.idle,
                lambda: machine.decide(Choice((A,))),
                machine.abandon,
            )[flags % 3]
            events += step()
            continue
        if first and flags & 8:
            message.protocol_config.request_body_mode = data[0] % 7
            message.protocol_config.response_body_mode = data[0] // 7 % 7
            message.protocol_config.send_body_without_waiting_for_header_response = flags & 16 != 0
        first = False
        asked[message.WhichOneof("request") or ""] += 1
        events += machine.receive(message)
    events += machine.abandon()
    for once in (DecisionDue, Responded, ResponseEnded):
        assert sum(isinstance(each, once) for each in events) <= 1
    assert all(len(each.body) <= WINDOW for each in events if isinstance(each, DecisionDue))
    assert budget.used == 0
    for each in events:
        if isinstance(each, Reply):
            assert each.message.SerializeToString()
            assert asked[each.message.WhichOneof("response")], "an answer to nothing"


def _steps(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    at = 0
    while at + 3 <= len(data):
        kind, flags, length = data[at : at + 3]
        yield kind, flags, data[at + 3 : at + 3 + length]
        at += 3 + length


def _message(kind: int, flags: int, text: bytes) -> Any:
    end = flags & 1 != 0
    word = text.decode("latin-1")
    match kind % 9:
        case 0:
            names = ("content-length", "upgrade", ":path", "content-type")
            return request_headers(None, (names[flags // 2 % 4], word), end=end)
        case 1 | 2:
            return request_body(text * (1 + (flags & 4) * 50), end=end)
        case 3:
            return request_trailers()
        case 4:
            return response_headers((":status", word), upstream__address=word, end=end)
        case 5:
            return response_body(text, end=end)
        case 6:
            return response_trailers()
        case 7:
            try:
                return pb.ProcessingRequest.FromString(text)
            except DecodeError:
                return pb.ProcessingRequest()
        case _:
            return None


def settings(data: bytes) -> None:
    """Pool settings as metadata and as text, and those of the process: lines of ``key=value``."""
    text = data.decode("utf-8", "replace")
    pairs = [line.partition("=") for line in text.splitlines()]
    parsed = parse([(key, value) for key, _, value in pairs])
    assert isinstance(parsed, Parsed)
    assert parsed.settings.policy.ttl_s > 0
    for error in parsed.errors:
        assert len(error.value) <= 1000
        assert error.value.isascii()
    with suppress(ValueError):
        pairs_of(text)
    names = {key.removeprefix("--").replace("-", "_"): value for key, _, value in pairs}
    given = {name: value for name, value in names.items() if name in Settings.model_fields}
    with suppress(SettingsError):
        load(given)


TARGETS: dict[str, Callable[[bytes], None]] = {
    "prompt": prompt,
    "messages": messages,
    "settings": settings,
}
