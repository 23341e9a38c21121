"""Bodies that were cut: prefixes of the whole, in a space of their own."""

import json
from random import Random
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extproc.prompt import fingerprint, read_prompt
from extproc.prompt.model import Api, Prompt, Unreadable
from tests.bodies import PATHS, content_type_of, load
from tests.prompt.helpers import CHAT, chat, noisy_json, outcome, read, user
from tests.prompt.test_chat import chats

LAST: Final = (
    "system",
    "instructions",
    "query",
    "text",
    "input_ids",
    "prompt",
    "input",
    "documents",
    "messages",
)
FIRST: Final = ("type", "role", "name", "tool_use_id")


def head_first(value: Any, *, root: bool = True) -> Any:
    """The value with its keys in the order in which the content needs them."""
    if isinstance(value, list):
        return [head_first(item, root=False) for item in value]
    if not isinstance(value, dict):
        return value
    names = (
        sorted(value, key=lambda name: LAST.index(name) if name in LAST else -1)
        if root
        else (sorted(value, key=lambda name: FIRST.index(name) if name in FIRST else len(FIRST)))
    )
    return {name: head_first(value[name], root=False) for name in names}


def sizes(body: bytes, count: int = 400) -> list[int]:
    """All lengths of a small body, and a fair choice of a large one's."""
    if len(body) <= 2 * count:
        return list(range(len(body) + 1))
    random = Random(1)
    return sorted({*range(count // 2), *random.sample(range(len(body)), count), len(body)})


def assert_prefixes(path: str, body: bytes) -> None:
    whole = read_prompt(path, "application/json", "", body, complete=True)
    longest = 0
    for size in sizes(body):
        part = read_prompt(path, "application/json", "", body[:size], complete=False)
        if isinstance(whole, Prompt) and isinstance(part, Prompt):
            assert whole.content.startswith(part.content), body[:size][-60:]
            assert part.media == whole.media[: len(part.media)]
            assert whole.text.startswith(part.text) or part.text == part.content[:4096]
            longest = max(longest, len(part.content))
    if isinstance(whole, Prompt):
        assert longest == len(whole.content)


JSON = [name for name in PATHS if name.endswith(".json")]


@pytest.mark.parametrize("name", [name for name in JSON if not name.startswith(("027", "043"))])
def test_a_cut_example_is_a_prefix_of_the_whole(name: str) -> None:
    value = head_first(json.loads(load(name)))
    for text in (json.dumps(value), json.dumps(value, ensure_ascii=False, indent=1)):
        assert_prefixes(PATHS[name], text.encode())


@pytest.mark.parametrize("name", PATHS)
def test_any_cut_of_an_example_is_read_without_an_exception(name: str) -> None:
    body = load(name)
    for size in sizes(body):
        for complete in (False, True):
            found = read_prompt(
                PATHS[name], content_type_of(name), "", body[:size], complete=complete
            )
            if isinstance(found, Prompt):
                assert fingerprint(found, pool="p").total_tokens >= 0


@given(chats, st.integers(0, 2**32), st.data())
@settings(max_examples=120, deadline=None)
def test_a_cut_chat_is_a_prefix_in_any_whitespace(body: Any, seed: int, data: Any) -> None:
    text = noisy_json(body, Random(seed), shuffle=False).encode()
    size = data.draw(st.integers(1, len(text)))
    part = outcome(text[:size], complete=False)
    if isinstance(part, Prompt):
        assert read(text).content.startswith(part.content)


@given(chats, st.integers(0, 2**32), st.data())
@settings(max_examples=120, deadline=None)
def test_any_cut_in_any_order_is_read_without_an_exception(body: Any, seed: int, data: Any) -> None:
    text = noisy_json(body, Random(seed), shuffle=True).encode()
    size = data.draw(st.integers(0, len(text)))
    assert isinstance(outcome(text[:size], complete=data.draw(st.booleans())), Prompt | Unreadable)


def test_cuts_of_one_body_are_one_space_and_not_the_whole_ones() -> None:
    body = json.dumps(chat(user("x" * 4_000), user("y" * 9_000))).encode()
    whole, short, long = (
        fingerprint(prompt, pool="p")
        for prompt in (
            read(body),
            read(body[:6_000], complete=False),
            read(body[:9_000], complete=False),
        )
    )
    assert long.hashes[: len(short.hashes)] == short.hashes
    assert not set(whole.hashes) & set(long.hashes)


def test_a_whole_value_is_whole_whether_the_stream_ended_or_not() -> None:
    body = json.dumps(chat(user("x"))).encode()
    assert outcome(body, complete=False) == outcome(body, complete=True)
    assert read(body + b" \n", complete=False).content == read(body).content
    assert not read(body + b" \n", complete=False).cut


def test_fields_behind_the_cut_are_absent() -> None:
    body = (
        b'{"messages":[{"role":"user","content":"' + b"x" * 300 + b'"}],"tools":[{"a":1},{"b":2}]'
    )
    for end in (b"", b',"model":"m', b',"model":'):
        found = read(body + end, complete=False)
        assert found.model == ""
        assert found.cut
    before = read(body[: body.index(b',"tools"')], complete=False).content
    inside = read(body[: body.index(b"}]", -6) + 1], complete=False).content
    assert before == inside


def test_tools_that_were_cut_count_as_far_as_they_are_whole() -> None:
    body = b'{"tools":[{"a":1},{"b":2},{"c":'
    assert read(body, complete=False).content == b'\xffF{"a":1}\xffF{"b":2}'


@pytest.mark.parametrize(
    "end",
    [
        "ž".encode()[:1],
        "€".encode()[:2],
        "🐎".encode()[:3],
        b"\\",
        b"\\u",
        b"\\u00e",
        b"\\ud83d",
        b"\\ud83d\\u",
    ],
)
def test_a_cut_inside_a_character_or_an_escape(end: bytes) -> None:
    start = b'{"model":"m","messages":[{"role":"user","content":"abc'
    found = read(start + end, complete=False)
    assert found.content == b"\xffMuser\xffTabc"
    assert found.problem is None


def test_a_medium_that_was_cut_is_dropped() -> None:
    part = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    body = json.dumps(chat(user([{"type": "text", "text": "see"}, part]))).encode()
    cut = read(body[: body.index(b"AAAA") + 2], complete=False)
    assert cut.media == ()
    assert cut.content == b"\xffMuser\xffTsee"


def test_an_id_that_was_cut_is_dropped() -> None:
    found = read(b'{"prompt":[1,23,45', "/v1/completions", complete=False)
    assert found.content == b"\xffK\0\0\0\x01\0\0\0\x17"


def test_a_raw_body_is_keyed_alike_cut_or_whole() -> None:
    body = json.dumps({"anything": "x" * 1_000}).encode()
    whole, cut = read(body, "/unknown"), read(body[:600], "/unknown", complete=False)
    assert cut.api is Api.RAW
    assert cut.cut
    one, other = fingerprint(whole, pool="p"), fingerprint(cut, pool="p")
    assert other.hashes == one.hashes[: len(other.hashes)]
    assert fingerprint(cut, pool="p", total_bytes=1_016).total_tokens == 254


def test_the_role_of_a_cut_message_may_be_unknown() -> None:
    found = outcome(b'{"messages":[{"content":"' + b"x" * 300, CHAT, complete=False)
    assert isinstance(found, Prompt)
    assert found.content == b"\xffM\xffT" + b"x" * 300
