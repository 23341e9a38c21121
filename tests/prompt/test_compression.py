"""Compressed bodies: the same prompt as their plain text's, and bombs that stop."""

import gzip
import json
import tracemalloc
import zlib
from collections.abc import Callable
from dataclasses import replace
from random import Random

import brotli
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from extproc.prompt import fingerprint, read_prompt
from extproc.prompt.compression import unpack, unpacks
from extproc.prompt.model import Prompt, Unreadable
from tests.bodies import PATHS, content_type_of, load, path_of
from tests.prompt.helpers import CHAT, chat, read, user

Pack = Callable[[bytes], bytes]


def bare_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


def in_members(data: bytes) -> bytes:
    half = len(data) // 2
    return gzip.compress(data[:half]) + gzip.compress(data[half:])


def in_frames(data: bytes) -> bytes:
    half = len(data) // 2
    return zstandard.compress(data[:half]) + zstandard.compress(data[half:])


def of_unknown_length(data: bytes) -> bytes:
    packer = zstandard.ZstdCompressor(write_content_size=False).compressobj()
    return packer.compress(data) + packer.flush()


PACKS: list[tuple[str, Pack]] = [
    ("gzip", gzip.compress),
    ("x-gzip", gzip.compress),
    ("gzip", in_members),
    ("deflate", zlib.compress),
    ("deflate", bare_deflate),
    ("br", brotli.compress),
    ("zstd", zstandard.compress),
    ("zstd", in_frames),
    ("zstd", of_unknown_length),
]
every_pack = pytest.mark.parametrize(
    ("coding", "pack"), PACKS, ids=[f"{coding}-{pack.__name__}" for coding, pack in PACKS]
)


def packed_prompt(
    coding: str, packed: bytes, *, complete: bool = True, limit: int = 1 << 20
) -> Prompt | Unreadable:
    return read_prompt(
        CHAT, "application/json", coding, packed, complete=complete, unpacked_limit=limit
    )


def text(size: int, seed: int = 1) -> str:
    random = Random(seed)
    words = [f"{random.randrange(1 << 40):x}" for _ in range(size // 8)]
    return " ".join(words)[:size]


@every_pack
@pytest.mark.parametrize("name", sorted(PATHS))
def test_a_packed_body_has_the_checkpoints_of_its_plain_text(
    coding: str, pack: Pack, name: str
) -> None:
    path, kind, body = path_of(name), content_type_of(name), load(name)
    plain = read_prompt(path, kind, "", body, complete=True)
    packed = read_prompt(path, kind, coding, pack(body), complete=True)
    if isinstance(plain, Prompt):
        assert isinstance(packed, Prompt)
        assert fingerprint(packed, pool="p") == fingerprint(plain, pool="p")
    else:
        assert packed is plain


@every_pack
def test_a_cut_stream_gives_a_cut_prompt(coding: str, pack: Pack) -> None:
    body = json.dumps(chat(user(text(400_000)))).encode()
    packed = pack(body)
    whole = read(body)
    cut = packed_prompt(coding, packed[: len(packed) * 3 // 4], complete=False)
    assert isinstance(cut, Prompt)
    assert cut.cut
    assert whole.content.startswith(cut.content)
    assert len(cut.content) > len(whole.content) // 4
    assert cut.size == len(packed) * 3 // 4
    tokens = fingerprint(cut, pool="p", total_bytes=len(packed)).total_tokens
    assert tokens == pytest.approx(fingerprint(whole, pool="p").total_tokens, rel=0.35)


@every_pack
def test_all_that_is_behind_the_limit_is_cut(coding: str, pack: Pack) -> None:
    body = json.dumps(chat(user(text(100_000)))).encode()
    found = packed_prompt(coding, pack(body), limit=50_000)
    assert isinstance(found, Prompt)
    assert found == replace(read(body[:50_000], complete=False), size=len(pack(body)))


@every_pack
def test_a_bomb_stops_at_the_limit(coding: str, pack: Pack) -> None:
    start = b'{"model":"m","messages":[{"role":"user","content":"'
    bomb = pack(start + b"a" * 100_000_000)
    assert len(bomb) < 600_000
    tracemalloc.start()
    found = unpack(coding, bomb, 1 << 19)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found == (start + b"a" * (1 << 19))[: 1 << 19]
    assert peak < 4 << 20


def test_many_small_bombs() -> None:
    empty = gzip.compress(b"")
    assert unpack("gzip", empty * 25_000, 1 << 19) == b""
    assert unpack("gzip", gzip.compress(b"ab") * 3, 1 << 19) == b"ababab"


def test_a_window_too_large_to_remember_is_not_read() -> None:
    for log, found in ((23, b"a" * 1_000), (27, b"")):
        options = zstandard.ZstdCompressionParameters(window_log=log, write_content_size=False)
        packer = zstandard.ZstdCompressor(compression_params=options).compressobj()
        packed = packer.compress(b"a" * 20_000_000) + packer.flush()
        assert unpack("zstd", packed, 1_000) == found


@every_pack
def test_a_broken_stream_gives_what_came_before(coding: str, pack: Pack) -> None:
    body = json.dumps(chat(user(text(400_000)))).encode()
    packed = bytearray(pack(body))
    middle = len(packed) // 2
    packed[middle : middle + 64] = b"\xff" * 64
    found = packed_prompt(coding, bytes(packed))
    assert isinstance(found, Prompt | Unreadable)
    if isinstance(found, Prompt):
        assert (
            found.content[: len(found.content) // 4]
            == read(body).content[: len(found.content) // 4]
        )


@pytest.mark.parametrize("coding", ["gzip", "x-gzip", "deflate", "br", "zstd"])
@given(data=st.binary(max_size=80), limit=st.integers(1, 100))
@settings(max_examples=60, deadline=None)
def test_any_bytes(coding: str, data: bytes, limit: int) -> None:
    assert unpacks(coding)
    assert len(unpack(coding, data, limit)) <= limit
    assert isinstance(packed_prompt(coding, data), Prompt | Unreadable)


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "zstd"])
def test_what_is_not_packed_as_it_says_has_no_prompt(coding: str) -> None:
    body = json.dumps(chat(user("hello"))).encode()
    assert packed_prompt(coding, body) is Unreadable.BROKEN_JSON
