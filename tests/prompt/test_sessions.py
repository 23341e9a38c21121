"""The session that a body names."""

import json
from typing import Any

import pytest

from extproc.prompt import read_prompt
from extproc.prompt.model import Prompt

CHAT = "/v1/chat/completions"


def session(body: bytes, field: str, *, path: str = CHAT, complete: bool = True) -> str:
    prompt = read_prompt(path, "application/json", "", body, complete=complete, session_field=field)
    assert isinstance(prompt, Prompt)
    return prompt.session


def chat(**fields: Any) -> bytes:
    return json.dumps(
        {"model": "m", "messages": [{"role": "user", "content": "hi"}]} | fields
    ).encode()


@pytest.mark.parametrize(
    ("fields", "field", "found"),
    [
        ({"user": "u1"}, "user", "u1"),
        ({"user": 17}, "user", "17"),
        ({"user": "u1"}, "", ""),
        ({"user": "u1"}, "session_id", ""),
        ({"user": True}, "user", ""),
        ({"user": 1.5}, "user", ""),
        ({"user": None}, "user", ""),
        ({"user": ["u1"]}, "user", ""),
        ({"metadata": {"session_id": "s1"}}, "metadata.session_id", "s1"),
        ({"metadata": {"a": {"b": "s1"}}}, "metadata.a.b", "s1"),
        ({"metadata": "s1"}, "metadata.session_id", ""),
        ({"metadata": {}}, "metadata.session_id", ""),
        ({"metadata": {"session_id": "s1"}}, "metadata", ""),
    ],
)
@pytest.mark.parametrize("path", [CHAT, "/unknown"])
def test_a_field_names_the_session(
    fields: dict[str, Any], field: str, found: str, path: str
) -> None:
    assert session(chat(**fields), field, path=path) == found


@pytest.mark.parametrize("path", [CHAT, "/unknown"])
@pytest.mark.parametrize("field", ["user", "metadata.session_id"])
def test_a_name_that_is_cut_is_no_name(field: str, path: str) -> None:
    names = {"user": "session-1", "metadata": {"session_id": "session-1"}}
    first, rest = field.partition(".")[0], "after it"
    body = chat(**{first: names[first]}, tail=rest)
    whole = body.index(b"session-1") + len(b"session-1")
    found = [
        session(body[:size], field, path=path, complete=False)
        for size in range(body.index(b"hi") + 4, len(body) + 1)
    ]

    assert set(found) == {"", "session-1"}
    assert found.index("session-1") >= whole - body.index(b"hi") - 4
    assert "" not in found[found.index("session-1") :]


def test_a_body_that_is_no_object_names_none() -> None:
    assert session(b"[1]", "user", path="/unknown") == ""
    assert session(b'{"user": "u1"', "user", path="/unknown") == ""
