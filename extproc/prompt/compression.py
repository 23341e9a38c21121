"""Compressed bodies, unpacked for the router's own eyes: what a replica gets stays as it came."""

import zlib
from collections.abc import Callable, Generator, Iterator
from typing import Final

import brotli
import zstandard

_STEP: Final = 64 * 1024
_MOST_MEMBERS: Final = 64
"""Members of a gzip file that are read: thousands of empty ones would cost a second."""
_ZSTD_WINDOW: Final = 8 * 1024 * 1024
"""Most that a body may have a reader remember, in bytes (RFC 9659)."""


def coding_of(content_encoding: str) -> str:
    """What a Content-Encoding header says was done to a body; empty for nothing.

    Codings that were applied one after the other are one name, ``deflate,gzip``.
    """
    names = (name.strip().lower() for name in content_encoding.split(","))
    return ",".join(name for name in names if name not in ("", "identity"))


def unpacks(coding: str) -> bool:
    """Whether bodies of this coding can be unpacked: gzip, deflate, br and zstd can."""
    return coding in _CODINGS


def unpack(coding: str, packed: bytes, limit: int) -> bytes:
    """The start of a compressed body.

    Takes time and memory bounded by the packed bytes and the limit, whatever those bytes promise:
    a bomb stops there. A stream that is cut or broken gives what came before that.

    Args:
        coding: One that can be unpacked.
        packed: The body, or its first bytes; any bytes.
        limit: Most bytes to return.
    """
    body = bytearray()
    try:
        for part in _CODINGS[coding](packed):
            body += part
            if len(body) >= limit:
                break
    except (zlib.error, brotli.error, zstandard.ZstdError):
        pass
    return bytes(body[:limit])


def _gzip(packed: bytes) -> Iterator[bytes]:
    for _ in range(_MOST_MEMBERS):
        packed = yield from _inflate(packed, zlib.MAX_WBITS | 16)
        if not packed:
            return


def _deflate(packed: bytes) -> Iterator[bytes]:
    # RFC 9110 means the zlib format; some clients leave its header out, and servers forgive it.
    zlib_header = packed[:1] == b"\x78" and int.from_bytes(packed[:2]) % 31 == 0
    yield from _inflate(packed, zlib.MAX_WBITS if zlib_header else -zlib.MAX_WBITS)


def _inflate(packed: bytes, wbits: int) -> Generator[bytes, None, bytes]:
    """Unpack one stream; returns what follows it."""
    inflater = zlib.decompressobj(wbits)
    while part := inflater.decompress(packed, _STEP):
        yield part
        packed = inflater.unconsumed_tail
    return inflater.unused_data


def _br(packed: bytes) -> Iterator[bytes]:
    inflater = brotli.Decompressor()
    while part := inflater.process(packed, output_buffer_limit=_STEP):
        yield part
        if inflater.is_finished():
            return
        packed = b""


def _zstd(packed: bytes) -> Iterator[bytes]:
    inflater = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW)
    with inflater.stream_reader(packed, read_across_frames=True) as frames:
        while part := frames.read(_STEP):
            yield part


_CODINGS: Final[dict[str, Callable[[bytes], Iterator[bytes]]]] = {
    "gzip": _gzip,
    "x-gzip": _gzip,
    "deflate": _deflate,
    "br": _br,
    "zstd": _zstd,
}
