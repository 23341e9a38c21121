"""Chat: what counts as equal, and what does not."""

import json
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extproc.prompt.model import Api
from tests.prompt.helpers import CHAT, chat, content, noisy_json, read, user

texts = st.text(max_size=12)
parts = st.one_of(
    texts.map(lambda text: {"type": "text", "text": text}),
    texts.map(lambda url: {"type": "image_url", "image_url": {"url": url}}),
    texts.map(lambda data: {"type": "input_audio", "input_audio": {"data": data, "format": "wav"}}),
)
arguments = st.dictionaries(texts, st.one_of(texts, st.integers(), st.none()), max_size=2)
calls = st.builds(
    lambda name, value: {
        "id": "c1",
        "type": "function",
        "function": {"name": name, "arguments": json.dumps(value)},
    },
    texts,
    arguments,
)
messages = st.builds(
    lambda role, body, name, tool_calls: {
        "role": role,
        **({"name": name} if name is not None else {}),
        "content": body,
        **({"tool_calls": tool_calls} if tool_calls else {}),
    },
    st.sampled_from(["system", "user", "assistant", "tool"]),
    st.one_of(texts, st.none(), st.lists(parts, max_size=3)),
    st.one_of(st.none(), texts),
    st.lists(calls, max_size=2),
)
tools = st.lists(
    st.builds(
        lambda name, schema: {"type": "function", "function": {"name": name, "parameters": schema}},
        texts,
        arguments,
    ),
    max_size=2,
)
chats = st.builds(
    lambda tools, messages: {"model": "m", "tools": tools, "messages": messages, "stream": True},
    tools,
    st.lists(messages, min_size=1, max_size=4),
)


@given(chats, st.integers(0, 2**32))
@settings(max_examples=120, deadline=None)
def test_key_order_whitespace_and_escapes_do_not_count(body: Any, seed: int) -> None:
    noisy = noisy_json(body, Random(seed), shuffle=True).encode()
    assert json.loads(noisy) == body
    assert replace(read(noisy), size=0) == replace(read(body), size=0)


@given(chats, messages)
@settings(max_examples=80, deadline=None)
def test_another_message_only_appends(body: Any, message: Any) -> None:
    longer = {**body, "messages": [*body["messages"], message]}
    assert content(longer).startswith(content(body))
    assert content(longer) != content(body)


plain = st.lists(
    st.tuples(st.sampled_from(["user", "User", ""]), st.text("aTM\x00ÿ\U0010ffff", max_size=3)),
    min_size=1,
    max_size=3,
)


@given(plain, plain)
@settings(max_examples=200, deadline=None)
def test_different_messages_never_meet(one: Any, other: Any) -> None:
    def bytes_of(pairs: Any) -> bytes:
        return content(chat(*({"role": role, "content": text} for role, text in pairs)))

    assert (bytes_of(one) == bytes_of(other)) == (one == other)


def test_a_single_text_part_is_its_text() -> None:
    assert content(chat(user([{"type": "text", "text": "a"}]))) == content(chat(user("a")))
    assert content(chat(user([{"text": "a"}]))) == content(chat(user("a")))
    assert content(chat(user(["a"]))) == content(chat(user("a")))


def test_several_text_parts_are_kept_apart() -> None:
    def of(*texts: str) -> bytes:
        return content(chat(user([{"type": "text", "text": text} for text in texts])))

    variants = [of("ab"), of("a", "b"), of("a", "", "b"), of("", "ab"), of("ab", "")]
    assert len(set(variants)) == len(variants)


@pytest.mark.parametrize("empty", [None, "", [], [""], [{"type": "text", "text": ""}]])
def test_empty_content_of_any_form_is_equal(empty: Any) -> None:
    assert content(chat({"role": "assistant", "content": empty})) == content(
        chat({"role": "assistant"})
    )


def test_null_and_absent_fields_are_equal() -> None:
    nulls = dict.fromkeys(["tools", "documents", "chat_template", "cache_salt", "functions"])
    message = user("a") | dict.fromkeys(["name", "tool_calls", "tool_call_id", "reasoning"])
    assert replace(read(chat(message, **nulls)), size=0) == replace(read(chat(user("a"))), size=0)


@pytest.mark.parametrize(
    "fields",
    [
        {"temperature": 0.5},
        {"stream": True, "max_tokens": 3},
        {"tool_choice": "auto"},
        {"response_format": {"type": "json_object"}},
        {"metadata": {"a": "b"}, "user": "u", "priority": 3},
    ],
)
def test_sampling_does_not_count(fields: Any) -> None:
    assert content(chat(user("a"), **fields)) == content(chat(user("a")))


@pytest.mark.parametrize(
    "fields",
    [
        {"tools": [{"type": "function", "function": {"name": "f"}}]},
        {"functions": [{"name": "f"}]},
        {"chat_template_kwargs": {"enable_thinking": False}},
        {"chat_template": "{{ messages }}"},
        {"documents": [{"title": "t", "text": "x"}]},
        {"reasoning_effort": "high"},
    ],
)
def test_what_changes_the_rendered_head_parts_at_the_head(fields: Any) -> None:
    plain, changed = content(chat(user("a"))), content(chat(user("a"), **fields))
    assert changed[:2] != plain[:2]
    assert changed.endswith(plain)


@pytest.mark.parametrize("position", ["first", "last"])
def test_a_head_behind_the_messages_counts_as_well(position: str) -> None:
    tools = {"tools": [{"type": "function", "function": {"name": "f"}}]}
    messages = {"messages": [user("a")]}
    body = tools | messages if position == "first" else messages | tools
    assert content(body).startswith(b"\xffF{")


def test_the_order_of_tools_counts_and_that_of_their_keys_does_not() -> None:
    one, two = {"function": {"name": "f", "strict": True}}, {"function": {"name": "g"}}
    turned = {"function": {"strict": True, "name": "f"}}
    assert content(chat(user("a"), tools=[one, two])) == content(
        chat(user("a"), tools=[turned, two])
    )
    assert content(chat(user("a"), tools=[one, two])) != content(chat(user("a"), tools=[two, one]))


def test_equal_looking_values_in_tools_are_told_apart() -> None:
    variants = {content(chat(user("a"), tools=[{"default": v}])) for v in (1, 1.0, True, "1")}
    assert len(variants) == 4


def _call(value: Any) -> dict[str, Any]:
    return {
        "role": "assistant",
        "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": value}}],
    }


def test_arguments_are_compared_as_the_template_renders_them() -> None:
    expected = content(chat(_call('{"a":1,"b":2}')))
    assert content(chat(_call('{ "b": 2,\n"a": 1 }'))) == expected
    assert content(chat(_call({"b": 2, "a": 1}))) == expected
    assert content(chat(_call('{"a":1,"b":3}'))) != expected
    assert content(chat(_call(""))) == content(chat(_call(None))) == content(chat(_call("{}")))
    assert content(chat(_call('{"a":'))).endswith(b'\xffA{"a":')
    long = json.dumps({"b": 2, "a": "x" * 2_000})
    assert content(chat(_call(long))) == content(chat(_call(json.loads(long))))


@pytest.mark.parametrize(
    "changed",
    [
        {"role": "user", "content": "x", "tool_call_id": "c"},
        {"role": "user", "name": "n", "content": "x"},
        {"role": "user", "content": "x", "reasoning_content": "r"},
        {"role": "user", "content": "x", "tool_calls": [{"function": {"name": "f"}}]},
        {"role": "user", "content": "x", "tool_calls": [{"type": "custom", "custom": {}}]},
        {"role": "user", "content": "x", "function_call": {"name": "f", "arguments": "{}"}},
        {"role": "user", "content": "x", "refusal": "no"},
        {"role": "user", "content": "x", "tools": [{"function": {"name": "f"}}]},
        {"role": "system", "content": "x"},
        {"role": "user", "content": [{"type": "refusal", "refusal": "x"}]},
        {"role": "user", "content": {"type": "other"}},
        {"role": "user", "content": 5},
        "x",
        5,
        [],
        [{"role": "user", "content": "x"}],
    ],
)
def test_every_field_of_a_message_counts(changed: Any) -> None:
    following = user("y")
    plain = content(chat(user("x"), following))
    other = content(chat(changed, following))
    assert other != plain
    assert not plain.startswith(other)
    assert not other.startswith(plain)


def test_the_names_of_reasoning_are_one() -> None:
    variants = {
        content(chat({"role": "assistant", "content": "a", name: "r"}))
        for name in ("reasoning", "reasoning_content", "thinking")
    }
    assert len(variants) == 1


def _part(kind: str, value: Any, **fields: Any) -> dict[str, Any]:
    return {"type": kind, kind: value, **fields}


@pytest.mark.parametrize(
    ("kind", "one", "other"),
    [
        ("image_url", {"url": "data:image/png;base64,AA"}, {"url": "data:image/png;base64,AB"}),
        ("image_url", {"url": "https://a/1.png"}, {"url": "https://a/2.png"}),
        ("input_audio", {"data": "AA", "format": "wav"}, {"data": "AB", "format": "wav"}),
        ("audio_url", {"url": "https://a/1.wav"}, {"url": "https://a/2.wav"}),
        ("video_url", {"url": "https://a/1.mp4"}, {"url": "https://a/2.mp4"}),
        ("file", {"file_data": "AA"}, {"file_data": "AB"}),
        ("file", {"file_id": "a"}, {"file_id": "b"}),
        ("image_embeds", "AA", "AB"),
        ("image_embeds", {"a": [1.5, 2.0]}, {"a": [1.5, 2.5]}),
        ("image_embeds", ["a", "b"], ["ab"]),
        ("prompt_embeds", "AA", "AB"),
    ],
)
def test_media_count_by_their_content(kind: str, one: Any, other: Any) -> None:
    first, second = (
        read(chat(user([_part(kind, value), {"type": "text", "text": "what?"}])))
        for value in (one, other)
    )
    assert first.content != second.content
    assert len(first.content) == len(second.content)
    assert first.media == second.media == (2 + 4 + 18,)


def test_a_url_is_the_same_bare_or_in_an_object_and_at_any_detail() -> None:
    bare = content(chat(user([_part("image_url", "u")])))
    assert content(chat(user([_part("image_url", {"url": "u"})]))) == bare
    assert content(chat(user([_part("image_url", {"url": "u", "detail": "low"})]))) == bare
    assert content(chat(user([{"image_url": {"url": "u"}}]))) == bare


def test_a_uuid_stands_for_its_medium() -> None:
    full = content(chat(user([_part("image_url", {"url": "data:,x"}, uuid="1")])))
    assert content(chat(user([_part("image_url", None, uuid="1")]))) == full
    assert content(chat(user([_part("image_url", None, uuid="2")]))) != full


def test_the_line_that_changes_with_each_request_of_claude_code_does_not_count() -> None:
    def of(system: Any) -> bytes:
        return content(chat({"role": "system", "content": system}, user("a")))

    line = "x-anthropic-billing-header: cc_version=2.1; cch={};"
    assert of(line.format(1) + "\nBe terse.") == of("Be terse.")
    assert of(
        [{"type": "text", "text": line.format(2)}, {"type": "text", "text": "Be terse."}]
    ) == (of("Be terse."))
    assert content(chat(user(line.format(1)))) != content(chat(user(line.format(2))))


def test_the_sample_is_the_head_of_all_texts() -> None:
    body = chat(user("ab"), {"role": "assistant", "name": "n", "content": "c"}, user("ž" * 9_000))
    assert read(body).text == ("abc" + "ž" * 4_093).encode()


def test_what_keeps_equal_contents_apart_is_in_the_salt() -> None:
    bodies = [
        chat(user("a")),
        chat(user("a"), model="n"),
        chat(user("a"), model="m\x00s"),
        chat(user("a"), cache_salt="s"),
        chat(user("a"), lora_path="s"),
        chat(user("a"), lora_path=["s"]),
        chat(user("a"), extra_key="s"),
        chat(user("a"), model=5),
        {"messages": [user("a")]},
    ]
    prompts = [read(body) for body in bodies]
    assert len({prompt.content for prompt in prompts}) == 1
    assert len({prompt.salt for prompt in prompts}) == len(prompts)
    assert [prompt.model for prompt in prompts[:3]] == ["m", "n", "m\x00s"]
    assert prompts[-1].salt == b""
    assert prompts[-1].model == prompts[-2].model == ""


@pytest.mark.parametrize(
    "path",
    [
        CHAT,
        CHAT + "/",
        CHAT + "?beta=true&x=/v1/completions",
        "/serving" + CHAT,
        "/openai/deployments/gpt/chat/completions?api-version=1",
        "//v1//chat/completions",
        "/chat/completions#x",
    ],
)
def test_prefixes_queries_and_slashes_of_a_path(path: str) -> None:
    prompt = read(chat(user("a")), path)
    assert prompt.api is Api.CHAT
    assert prompt.content == content(chat(user("a")))


@pytest.mark.parametrize("path", ["/v1/chat/completionsx", "/v1/xchat/complete", "/v1/chat"])
def test_a_path_that_only_looks_alike_is_read_raw(path: str) -> None:
    prompt = read(b'{"messages": []}', path)
    assert prompt.api is Api.RAW
    assert prompt.content == prompt.text == b'{"messages": []}'
    assert prompt.salt == b""
