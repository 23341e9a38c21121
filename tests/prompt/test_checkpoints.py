"""Positions of checkpoints, and the fingerprint over them."""

from math import floor, log2
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xxhash import xxh3_128

from extproc.prompt import checkpoint_positions, fingerprint
from extproc.prompt.fingerprinting import MAX_TOKENS
from extproc.prompt.model import Api, Prompt
from tests.prompt.helpers import chat, outcome, read, user

BYTES = Random(7).randbytes(70_000)


def raw(content: bytes) -> Prompt:
    return Prompt(api=Api.CHAT, content=content, text=b"t", size=len(content))


@pytest.mark.parametrize(
    ("size", "count"), [(0, 0), (255, 0), (256, 1), (4_096, 16), (32_768, 40), (400_000, 68)]
)
def test_counts(size: int, count: int) -> None:
    assert len(checkpoint_positions(size)) == count


def test_positions_follow_the_definition() -> None:
    size = 70_000
    expected = [
        p for p in range(1, size + 1) if p >= 256 and p % max(256, 2 ** floor(log2(p / 8))) == 0
    ]
    assert list(checkpoint_positions(size)) == expected


def test_a_position_is_at_most_an_eighth_behind_any_length() -> None:
    for size in range(256, 200_000, 77):
        assert size - checkpoint_positions(size)[-1] <= max(256, size / 8)


@given(st.integers(0, 70_000), st.integers(0, 70_000))
@settings(max_examples=60, deadline=None)
def test_checkpoints_of_a_longer_prompt_begin_with_the_shorter_ones(one: int, other: int) -> None:
    short, long = sorted((one, other))
    first = fingerprint(raw(BYTES[:short]), pool="p")
    second = fingerprint(raw(BYTES[:long]), pool="p")
    count = len(first.positions)
    assert second.positions[:count] == first.positions
    assert second.hashes[:count] == first.hashes
    assert second.tokens[:count] == first.tokens
    assert len(first.hashes) == len(first.tokens) == count
    assert len(set(second.hashes)) == len(second.hashes)
    if short >= 256:
        assert first.tie == second.tie


def test_each_hash_covers_all_bytes_before_it_and_none_behind() -> None:
    base = fingerprint(raw(BYTES[:5_000]), pool="p")
    for changed in (0, 255, 256, 3_000, 4_999):
        data = bytearray(BYTES[:5_000])
        data[changed] ^= 1
        other = fingerprint(raw(bytes(data)), pool="p")
        equal = [a == b for a, b in zip(base.hashes, other.hashes, strict=True)]
        assert equal == [position <= changed for position in base.positions]


def test_the_tie_key_covers_the_first_256_bytes() -> None:
    assert fingerprint(raw(b"a" * 256 + b"b"), pool="p").tie == (
        fingerprint(raw(b"a" * 256 + b"c"), pool="p").tie
    )
    assert fingerprint(raw(b"a"), pool="p").tie != fingerprint(raw(b"b"), pool="p").tie
    assert len(fingerprint(raw(b"a"), pool="p").tie) == xxh3_128().digest_size == 16


def test_pool_tenant_and_salt_are_told_apart() -> None:
    prompt = read(chat(user("x" * 600)))
    other_model = read({**chat(user("x" * 600)), "model": "n"})
    ties = [
        fingerprint(prompt, pool="ab", tenant="c").tie,
        fingerprint(prompt, pool="a", tenant="bc").tie,
        fingerprint(prompt, pool="abc").tie,
        fingerprint(other_model, pool="abc").tie,
        fingerprint(prompt, pool="abc", tenant="\udcff").tie,
    ]
    assert len(set(ties)) == len(ties)


def test_tokens_are_bytes_and_media() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    prompt = read(chat(user([{"type": "text", "text": "a" * 500}, image]), user("b" * 500)))
    found = fingerprint(prompt, pool="p", bytes_per_token=2.0, media_tokens=100)
    assert prompt.media == (2 + 4 + 2 + 500 + 18,)
    assert found.positions == (256, 512, 768, 1024)
    assert found.tokens == (128, 256, 384 + 100, 512 + 100)
    assert found.total_tokens == len(prompt.content) // 2 + 100


def test_token_ids_count_four_bytes_each() -> None:
    prompt = read({"prompt": list(range(1000))}, "/v1/completions")
    found = fingerprint(prompt, pool="p")
    assert len(prompt.content) == 4_002
    assert found.total_tokens == 1_000


def test_the_length_of_a_cut_body_tells_its_tokens() -> None:
    prompt = read(
        b'{"model":"m","messages":[{"role":"user","content":"' + b"x" * 10_000, complete=False
    )
    read_tokens = fingerprint(prompt, pool="p").total_tokens
    assert read_tokens == len(prompt.content) // 4
    twice = fingerprint(prompt, pool="p", total_bytes=2 * prompt.size).total_tokens
    assert twice in (2 * read_tokens, 2 * read_tokens + 1)
    for absurd in (-1, 0, 5):
        assert fingerprint(prompt, pool="p", total_bytes=absurd).total_tokens == read_tokens
    assert fingerprint(prompt, pool="p", total_bytes=10**30).total_tokens == MAX_TOKENS


def test_a_claimed_length_does_not_change_a_whole_prompt() -> None:
    prompt = read(chat(user("hello")))
    assert fingerprint(prompt, pool="p", total_bytes=99_999) == fingerprint(prompt, pool="p")


def test_the_sticky_key_is_the_head_of_the_text() -> None:
    def sticky(text: str, **options: object) -> bytes:
        return fingerprint(read(chat(user(text))), pool="p", **options).sticky  # type: ignore[arg-type]

    assert sticky("ž" * 10 + "a", prefix_length=10) == sticky("ž" * 10 + "b", prefix_length=10)
    assert sticky("ž" * 9 + "a", prefix_length=10) != sticky("ž" * 9 + "b", prefix_length=10)
    assert sticky("a") != sticky("a", aware_id="x")
    assert (
        sticky("a") == fingerprint(read(chat({"role": "system", "content": "a"})), pool="p").sticky
    )


def test_only_the_sticky_key_knows_of_cache_key_and_aware_id() -> None:
    plain = fingerprint(read(chat(user("x" * 300))), pool="p")
    keyed = fingerprint(read(chat(user("x" * 300), prompt_cache_key="k")), pool="p", aware_id="i")
    assert plain.sticky != keyed.sticky
    assert plain.hashes == keyed.hashes
    assert plain.tie == keyed.tie


def test_the_sticky_key_of_token_ids_is_their_first_bytes() -> None:
    one, other = (
        fingerprint(
            read({"prompt": [*range(60), last]}, "/v1/completions"), pool="p", prefix_length=200
        )
        for last in (7, 8)
    )
    assert one.sticky == other.sticky
    assert one.tie != other.tie


def test_a_chat_that_outgrows_the_window_keeps_its_sticky_key() -> None:
    whole = b'{"model":"m","messages":[{"role":"user","content":"' + b"x" * 9_000 + b'"}]}'
    cut = outcome(whole[:8_000], complete=False)
    assert isinstance(cut, Prompt)
    one, other = fingerprint(read(whole), pool="p"), fingerprint(cut, pool="p")
    assert one.sticky == other.sticky
    assert not set(one.hashes) & set(other.hashes)
