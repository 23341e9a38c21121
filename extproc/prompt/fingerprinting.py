"""From a prompt to its checkpoints."""

import struct
from bisect import bisect_right
from functools import lru_cache
from typing import Final

from xxhash import xxh3_128

from extproc.prompt.checkpoints import checkpoint_positions
from extproc.prompt.content import CUT
from extproc.prompt.model import Api, Fingerprint, Prompt

MAX_TOKENS: Final = 1 << 20
"""Bound of all estimates, about the longest context of any engine: clients claim any length."""


def fingerprint(
    prompt: Prompt,
    *,
    pool: str,
    tenant: str = "",
    bytes_per_token: float = 4.0,
    media_tokens: int = 1024,
    prefix_length: int = 4096,
    aware_id: str = "",
    total_bytes: int | None = None,
) -> Fingerprint:
    """Hash a prompt at its checkpoints; linear in its length.

    Args:
        prompt: What was read.
        pool: The pool's name: replicas of another pool share nothing with these.
        tenant: Who must not learn from timing what others sent, or empty.
        bytes_per_token: Prompt bytes to a token, above 0.
        media_tokens: Tokens of an image, audio or video.
        prefix_length: Characters of the text (bytes, where there is no text) that make the key of
            the ``prefix_aware`` strategy; the prompt was read with at least that ``text_limit``.
        aware_id: What else salts that key, and only that.
        total_bytes: The content-length of a cut body, as the client claims it.
    """
    content = prompt.content
    positions = checkpoint_positions(len(content))
    space = _space(pool, tenant, prompt.api is Api.RAW)
    digest = xxh3_128(space + _sized(prompt.salt))
    view = memoryview(content)
    hashes = []
    start = 0
    for position in positions:
        digest.update(view[start:position])
        hashes.append(digest.digest())
        start = position
    if not hashes:
        digest.update(content)
    return Fingerprint(
        positions=positions,
        hashes=tuple(hashes),
        tokens=_tokens(positions, prompt.media, bytes_per_token, media_tokens),
        total_tokens=_total_tokens(prompt, bytes_per_token, media_tokens, total_bytes),
        tie=hashes[0] if hashes else digest.digest(),
        sticky=_sticky(prompt, space, prefix_length, aware_id),
    )


def _sized(data: bytes) -> bytes:
    return struct.pack("<I", len(data)) + data


@lru_cache(maxsize=1024)
def _space(pool: str, tenant: str, raw: bool) -> bytes:
    # Header values may hold any byte, as surrogates; so they are counted, not framed.
    names = (pool.encode(errors="surrogatepass"), tenant.encode(errors="surrogatepass"))
    return (b"r" if raw else b"j") + b"".join(map(_sized, names))


def _tokens(
    positions: tuple[int, ...], media: tuple[int, ...], bytes_per_token: float, media_tokens: int
) -> tuple[int, ...]:
    if not media:
        return _text_tokens(positions[-1] if positions else 0, bytes_per_token)
    return tuple(
        min(
            int(position / bytes_per_token) + media_tokens * bisect_right(media, position),
            MAX_TOKENS,
        )
        for position in positions
    )


@lru_cache(maxsize=4096)
def _text_tokens(last: int, bytes_per_token: float) -> tuple[int, ...]:
    return tuple(
        min(int(position / bytes_per_token), MAX_TOKENS) for position in checkpoint_positions(last)
    )


def _total_tokens(
    prompt: Prompt, bytes_per_token: float, media_tokens: int, total_bytes: int | None
) -> int:
    """Tokens of the whole prompt; what was cut is taken to be as dense as what was read."""
    read = int(len(prompt.content) / bytes_per_token) + media_tokens * len(prompt.media)
    if prompt.cut and prompt.size and total_bytes and total_bytes > prompt.size:
        read = read * total_bytes // prompt.size
    return min(read, MAX_TOKENS)


def _sticky(prompt: Prompt, space: bytes, prefix_length: int, aware_id: str) -> bytes:
    # The cut lies behind the key's text: it must not move a chat that outgrew the inspect window.
    salts = (
        prompt.salt.removesuffix(CUT),
        aware_id.encode(errors="surrogatepass"),
        prompt.cache_key.encode(),
    )
    text = prompt.text
    if len(text) > prefix_length:
        text = _head(prompt, prefix_length)
    return xxh3_128(b"sticky" + space + b"".join(map(_sized, salts)) + text).digest()


def _head(prompt: Prompt, characters: int) -> bytes:
    if prompt.api is not Api.RAW:
        try:
            return prompt.text.decode()[:characters].encode()
        except UnicodeDecodeError:
            pass  # token ids
    return prompt.text[:characters]
