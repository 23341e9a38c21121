import json
from typing import Any

import pytest

from extproc.lab.replica.cache import BYTES_PER_TOKEN
from extproc.lab.replica.openai import (
    BadRequestError,
    output_bytes,
    prompt_tokens,
    read_generation,
)


def read(fields: dict[str, Any], *, chat: bool = True) -> bytes:
    return read_generation(json.dumps(fields).encode(), chat=chat).prompts[0]


def test_the_next_turn_begins_with_this_ones_prompt_and_answer() -> None:
    messages = [{"role": "system", "content": "s"}, {"role": "user", "content": "hi"}]
    first = read({"messages": messages})
    answer = output_bytes(10)
    messages += [{"role": "assistant", "content": answer.decode()}]
    messages += [{"role": "user", "content": "more"}]
    assert read({"messages": messages}).startswith(first + answer)


def test_a_text_part_equals_a_string() -> None:
    parts = [{"type": "text", "text": "hi"}]
    assert read({"messages": [{"role": "user", "content": parts}]}) == read(
        {"messages": [{"role": "user", "content": "hi"}]}
    )


def test_every_output_token_has_four_bytes() -> None:
    assert len(output_bytes(11)) == 11 * BYTES_PER_TOKEN


def test_begun_tokens_count() -> None:
    assert [prompt_tokens(b"x" * size) for size in (0, 1, 4, 5)] == [1, 1, 1, 2]


def test_completions_take_texts_and_token_ids() -> None:
    assert read({"prompt": "abc"}, chat=False) == b"abc"
    assert read({"prompt": [1, 2]}, chat=False) == b"\1\0\0\0\2\0\0\0"
    both = read_generation(b'{"prompt": ["a", "b"], "max_tokens": 3}', chat=False)
    assert both.prompts == [b"a", b"b"]
    assert both.output_tokens == 3


def test_stream_options() -> None:
    body = b'{"prompt": "a", "stream": true, "stream_options": {"include_usage": true}}'
    generation = read_generation(body, chat=False)
    assert generation.stream
    assert generation.include_usage


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b'{"messages": []}',
        b'{"messages": "hi"}',
        b'{"messages": ["hi"]}',
        b'{"messages": [{"role": "user", "content": "hi"}], "max_tokens": 0}',
        b'{"messages": [{"role": "user", "content": "hi"}], "max_tokens": "9"}',
    ],
)
def test_bad_chats_are_refused(body: bytes) -> None:
    with pytest.raises(BadRequestError):
        read_generation(body, chat=True)


@pytest.mark.parametrize("body", [b"{}", b'{"prompt": []}', b'{"prompt": [-1]}', b'{"prompt": 1}'])
def test_bad_completions_are_refused(body: bytes) -> None:
    with pytest.raises(BadRequestError):
        read_generation(body, chat=False)
