"""Where the definitions of tools stand: in front, or behind the system message."""

import json
from typing import Any

import pytest
from hypothesis import given, settings

from extproc.prompt import read_prompt
from extproc.prompt.model import Prompt, ToolsPlace
from tests.bodies import PATHS, load
from tests.prompt.helpers import CHAT, chat, shared_prefix, user
from tests.prompt.test_chat import chats
from tests.prompt.test_cut import head_first

SYSTEM = {"role": "system", "content": "be terse"}
TOOLS: list[Any] = [{"name": "f"}, {"name": "g"}]
TOOL_BYTES = b'\xffF{"name":"f"}\xffF{"name":"g"}'
SYSTEM_BYTES = b"\xffMsystem\xffTbe terse"
USER_BYTES = b"\xffMuser\xffThi"


def behind(body: Any, path: str = CHAT, size: int | None = None) -> bytes:
    """The prompt bytes of a body, or of its first bytes, with the tools behind the system message.

    Empty where there are none.
    """
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    place = ToolsPlace.AFTER_SYSTEM
    prompt = read_prompt(
        path, "application/json", "", data[:size], complete=size is None, tools_place=place
    )
    return prompt.content if isinstance(prompt, Prompt) else b""


def in_front(body: Any, path: str = CHAT) -> bytes:
    data = json.dumps(body).encode()
    prompt = read_prompt(path, "application/json", "", data, complete=True)
    assert isinstance(prompt, Prompt)
    return prompt.content


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (CHAT, chat(SYSTEM, user("hi"), tools=TOOLS)),
        ("/v1/messages", {"system": "be terse", "tools": TOOLS, "messages": [user("hi")]}),
        ("/v1/responses", {"instructions": "be terse", "tools": TOOLS, "input": "hi"}),
        ("/v1/responses", {"tools": TOOLS, "input": [SYSTEM, user("hi")]}),
        ("/api/chat", chat(SYSTEM, user("hi"), tools=TOOLS)),
        ("/tokenize", chat(SYSTEM, user("hi"), tools=TOOLS)),
    ],
)
def test_both_places_in_every_api(path: str, body: Any) -> None:
    assert in_front(body, path) == TOOL_BYTES + SYSTEM_BYTES + USER_BYTES
    assert behind(body, path) == SYSTEM_BYTES + TOOL_BYTES + USER_BYTES
    turned = dict(reversed(body.items()))  # SDKs write the tools last
    assert behind(turned, path) == behind(body, path)


def test_a_developers_message_is_a_system_message() -> None:
    body = chat({"role": "developer", "content": "be terse"}, user("hi"), tools=TOOLS)
    assert behind(body) == b"\xffMdeveloper\xffTbe terse" + TOOL_BYTES + USER_BYTES


@pytest.mark.parametrize(
    "messages",
    [
        [user("hi")],
        [user("hi"), SYSTEM],
        [{"content": "be terse"}, user("hi")],
        ["system", user("hi")],
        [[SYSTEM, user("hi")]],
        [],
    ],
)
def test_without_a_system_message_in_front_the_tools_are(messages: list[Any]) -> None:
    body = chat(*messages, tools=TOOLS)
    assert behind(body) == in_front(body)
    assert behind(body).startswith(TOOL_BYTES)


def test_only_the_first_of_several_system_messages_stands_before_the_tools() -> None:
    body = chat(SYSTEM, SYSTEM, user("hi"), tools=TOOLS)
    assert behind(body) == SYSTEM_BYTES + TOOL_BYTES + SYSTEM_BYTES + USER_BYTES


def test_a_conversations_earlier_turns_hide_what_the_system_message_was() -> None:
    for history in ({"previous_response_id": "r"}, {"conversation": "c"}):
        body = {"tools": TOOLS, "input": [SYSTEM, user("hi")], **history}
        assert behind(body, "/v1/responses") == in_front(body, "/v1/responses")


def test_what_else_changes_the_head_stands_before_the_system_message() -> None:
    body = chat(SYSTEM, user("hi"), tools=TOOLS, reasoning_effort="high")
    head = b'\xffH{"reasoning_effort":"high"}'
    assert behind(body) == head + SYSTEM_BYTES + TOOL_BYTES + USER_BYTES
    assert in_front(body) == TOOL_BYTES + head + SYSTEM_BYTES + USER_BYTES


def test_who_shares_what() -> None:
    other = {"role": "system", "content": "talk much"}
    one = chat(SYSTEM, user("hi"), tools=TOOLS)
    same_system = chat(SYSTEM, user("hi"), tools=[{"name": "h"}])
    same_tools = chat(other, user("hi"), tools=TOOLS)
    assert shared_prefix(behind(one), behind(same_system)) == SYSTEM_BYTES + b'\xffF{"name":"'
    assert shared_prefix(behind(one), behind(same_tools)) == b"\xffMsystem\xffT"
    assert shared_prefix(in_front(one), in_front(same_system)) == b'\xffF{"name":"'
    assert shared_prefix(in_front(one), in_front(same_tools)).startswith(TOOL_BYTES)


@given(chats, chats)
@settings(max_examples=80, deadline=None)
def test_the_next_turn_extends_the_one_before(body: Any, more: Any) -> None:
    longer = {**body, "messages": body["messages"] + more["messages"]}
    assert behind(longer).startswith(behind(body))


@given(chats)
@settings(max_examples=80, deadline=None)
def test_the_place_moves_bytes_and_changes_none(body: Any) -> None:
    assert sorted(behind(body)) == sorted(in_front(body))


EXAMPLES = [
    name
    for name, path in PATHS.items()
    if name.endswith(".json")
    and any(api in path for api in ("chat", "messages", "responses"))
    and not name.startswith(("027", "043"))
]


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_cut_body_is_a_prefix_once_its_system_message_has_begun(name: str) -> None:
    """Before that it has nothing but the tools, and is known by them."""
    text = json.dumps(head_first(json.loads(load(name)))).encode()
    whole = behind(text, PATHS[name])
    known = known_from(text)
    for size in range(known, len(text), max(1, (len(text) - known) // 300)):
        assert whole.startswith(behind(text, PATHS[name], size)), text[:size][-60:]


def known_from(text: bytes) -> int:
    """Where it is clear what the first message is."""
    starts = [text.find(mark) for mark in (b'"role"', b'"system": ', b'"instructions": ')]
    begun = [start for start in starts if start >= 0]
    return min(begun) + 30 if begun else 0


def test_a_body_that_ends_in_its_tools_is_known_by_them() -> None:
    text = json.dumps({"tools": TOOLS, "messages": [SYSTEM, user("hi")]}).encode()
    assert behind(text, size=text.index(b"[{", text.index(b"messages")) + 1) == TOOL_BYTES
    assert behind(text, size=text.index(b"terse")) == b"\xffMsystem\xffTbe "
