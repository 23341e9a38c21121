"""Bodies made to break a reader. The engine answers the client; a router must not fail."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extproc.prompt import fingerprint, read_prompt, unreadable
from extproc.prompt.model import Prompt, ToolsPlace, Unreadable
from tests.bodies import PATHS, load
from tests.prompt.helpers import CHAT, chat, content, outcome, read, user

HEAD = b'{"model":"m","messages":[{"role":"user","content":"abc"},{"role":"user","content":"d'
SEEN = b"\xffMuser\xffTabc\xffMuser\xffTd"
paths = st.sampled_from(sorted({*PATHS.values(), "/", "/api/chat", "/score", "/x", ""}))


@given(st.binary(max_size=60), paths, st.booleans())
@settings(max_examples=200, deadline=None)
def test_random_bytes(body: bytes, path: str, complete: bool) -> None:
    found = read_prompt(path, "application/json", "", body, complete=complete)
    assert isinstance(found, Prompt | Unreadable)


values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(
                [
                    "type",
                    "text",
                    "role",
                    "content",
                    "name",
                    "image_url",
                    "url",
                    "thinking",
                    "tool_use_id",
                    "id",
                    "input",
                    "output",
                    "tool_calls",
                    "function",
                    "arguments",
                    "tools",
                    "model",
                    "images",
                    "audio",
                    "data",
                    "source",
                    "uuid",
                ]
            ),
            inner,
            max_size=4,
        ),
    ),
    max_leaves=12,
)
FIELDS = [
    "messages",
    "prompt",
    "input",
    "inputs",
    "text",
    "tools",
    "system",
    "instructions",
    "query",
    "documents",
    "texts",
    "text_1",
    "text_2",
    "token_ids",
    "input_ids",
    "image_data",
    "features",
    "prompt_embeds",
    "conversation",
    "context",
    "images",
    "model",
    "cache_salt",
    "lora_path",
    "parameters",
    "prompt_cache_key",
    "suffix",
    "reasoning",
    "functions",
    "tokens",
]


@given(st.dictionaries(st.sampled_from(FIELDS), values, max_size=6), paths, st.data())
@settings(max_examples=120, deadline=None)
def test_any_type_in_any_place(body: Any, path: str, data: Any) -> None:
    text = json.dumps(body).encode()
    size = data.draw(st.one_of(st.just(len(text)), st.integers(0, len(text))))
    found = read_prompt(
        path, "application/json", "", text[:size], complete=data.draw(st.booleans())
    )
    if isinstance(found, Prompt):
        print_ = fingerprint(found, pool="p", total_bytes=10**12)
        assert print_.total_tokens >= max(print_.tokens, default=0)
        assert list(found.media) == sorted(found.media)
        assert all(0 < offset <= len(found.content) for offset in found.media)


@given(st.text(max_size=8), st.text(max_size=12), st.text(max_size=12), st.text(max_size=6))
@settings(max_examples=60, deadline=None)
def test_any_headers(method: str, path: str, content_type: str, encoding: str) -> None:
    assert unreadable(method, path, content_type, encoding, "") in {None, *Unreadable}


@pytest.mark.parametrize(
    ("tail", "problem"),
    [
        (b'\\ud83d"}]}', Unreadable.SURROGATE),
        (b'\\ude00"}]}', Unreadable.SURROGATE),
        (b'\\ud83d\\n"}]}', Unreadable.SURROGATE),
        (b'\xff"}]}', Unreadable.NOT_UTF8),
        (b'\xed\xa0\xbd"}]}', Unreadable.NOT_UTF8),
        (b'\xc3"}]}', Unreadable.NOT_UTF8),
        (b'\\q"}]}', Unreadable.BROKEN_JSON),
        (b'\n"}]}', Unreadable.BROKEN_JSON),
        (b'"}', Unreadable.BROKEN_JSON),
        (b'"}]', Unreadable.BROKEN_JSON),
        (b'"}],}', Unreadable.BROKEN_JSON),
        (b'"}]} x', Unreadable.BROKEN_JSON),
        (b'"}],"x":' + b"[" * 300, Unreadable.TOO_DEEP),
        (b'"}],"x":' + b'{"a":' * 300 + b"1" + b"}" * 300 + b"}", Unreadable.TOO_DEEP),
        (b'"}],"x":' + b"9" * 100_000 + b"}", Unreadable.BROKEN_JSON),
    ],
)
def test_the_part_before_a_fault_is_keyed(tail: bytes, problem: Unreadable) -> None:
    found = read(HEAD + tail)
    assert found.content == SEEN
    assert found.problem is problem
    assert not found.cut
    assert fingerprint(found, pool="p").tie


@pytest.mark.parametrize("newlines", [0, 1, 3_000])
def test_a_fault_is_found_in_any_line(newlines: int) -> None:
    body = b"\n" * newlines + HEAD.replace(b"abc", "ž€🐎".encode()) + b'\xff"}]}'
    assert read(body).content == SEEN.replace(b"abc", "ž€🐎".encode())


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", Unreadable.NO_BODY),
        (b" \n", Unreadable.BROKEN_JSON),
        (b"hello", Unreadable.BROKEN_JSON),
        (b"{", Unreadable.BROKEN_JSON),
        (b"\xff\xfe{\x00}\x00", Unreadable.BROKEN_JSON),
        (b"\x80", Unreadable.BROKEN_JSON),
        (b'{"\xff":1}', Unreadable.NOT_UTF8),
        (b'{"\\ud800":1}', Unreadable.SURROGATE),
        (b'{"x":' + b"[" * 200_000, Unreadable.TOO_DEEP),
    ],
)
def test_a_body_of_which_nothing_can_be_read(body: bytes, reason: Unreadable) -> None:
    assert outcome(body) is reason


def test_a_fault_in_a_cut_body() -> None:
    found = read(HEAD + b'\xff"},{"role":"us', complete=False)
    assert (found.content, found.problem, found.cut) == (SEEN, Unreadable.NOT_UTF8, True)
    assert outcome(b'{"mod', complete=False) is Unreadable.NO_PROMPT_FIELD


def test_a_byte_order_mark_does_not_count() -> None:
    assert content(b"\xef\xbb\xbf" + load("001")) == content(load("001"))


def test_the_last_of_equal_keys_counts() -> None:
    doubled = (
        b'{"messages":[{"role":"user","content":"a"}],"messages":[{"role":"user","content":"b"}]}'
    )
    assert content(doubled) == content(chat(user("b")))


def test_nesting_up_to_the_parsers_limit_is_read() -> None:
    deep: Any = "x"
    for _ in range(90):
        deep = {"type": "tool_result", "tool_use_id": "t", "content": [deep]}
    nested = read({"messages": [user([deep])]}, "/v1/messages")
    assert nested.content.endswith(b"\xffTx" + b"\xffE" * 90)
    schema: Any = {}
    for _ in range(190):
        schema = {"a": schema}
    assert b'{"a":' * 190 in content(chat(user("a"), tools=[schema]))


def test_odd_numbers_in_tools_are_written_out() -> None:
    body = (
        b'{"tools":[{"a":NaN,"b":-Infinity,"c":1e999,"d":'
        + b"9" * 4_300
        + b',"e":-0.0}],"messages":[{"role":"user","content":"a"}]}'
    )
    assert read(body).content.startswith(
        b'\xffF{"a":NaN,"b":-Infinity,"c":Infinity,"d":' + b"9" * 4_300 + b',"e":-0.0}'
    )


def test_a_million_keys() -> None:
    members = ",".join(map('"{0}":{0}'.format, range(1_000_000)))
    body = f'{{{members},"messages":[{{"role":"user","content":"a"}}]}}'.encode()
    assert read(body).content == content(chat(user("a")))


def test_absurdly_many_media_do_not_count_absurdly() -> None:
    images = [{"type": "image_url", "image_url": {"url": str(i)}} for i in range(5_000)]
    found = fingerprint(read(chat(user(images))), pool="p")
    assert found.total_tokens == max(found.tokens) == 1 << 20


def test_the_path_and_the_body_may_disagree() -> None:
    assert outcome(chat(user("a")), "/v1/completions") is Unreadable.NO_PROMPT_FIELD
    assert outcome({"prompt": "a"}, CHAT) is Unreadable.NO_PROMPT_FIELD


@pytest.mark.parametrize("role", [{}, [], 1, None, True, {"a": ["system"]}])
@pytest.mark.parametrize("path", [CHAT, "/v1/messages", "/v1/responses", "/api/chat"])
def test_a_role_of_any_type_is_no_system_message(role: Any, path: str) -> None:
    messages = [{"role": role, "content": "a"}, user("b")]
    body = {"model": "m", "messages": messages, "input": messages, "tools": [{"name": "t"}]}
    for place in ToolsPlace:
        found = read_prompt(
            path,
            "application/json",
            "",
            json.dumps(body).encode(),
            complete=True,
            tools_place=place,
        )
        assert isinstance(found, Prompt)
