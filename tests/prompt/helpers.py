"""What the tests of prompts share."""

import json
from random import Random
from typing import Any

from extproc.prompt import read_prompt
from extproc.prompt.model import Prompt, Unreadable
from tests.bodies import content_type_of, load, path_of

CHAT = "/v1/chat/completions"


def outcome(body: Any, path: str = CHAT, *, complete: bool = True) -> Prompt | Unreadable:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return read_prompt(path, "application/json", "", data, complete=complete)


def read(body: Any, path: str = CHAT, *, complete: bool = True) -> Prompt:
    prompt = outcome(body, path, complete=complete)
    assert isinstance(prompt, Prompt), prompt
    return prompt


def content(body: Any, path: str = CHAT, *, complete: bool = True) -> bytes:
    return read(body, path, complete=complete).content


def chat(*messages: Any, **fields: Any) -> dict[str, Any]:
    return {"model": "m", **fields, "messages": list(messages)}


def user(text: Any) -> dict[str, Any]:
    return {"role": "user", "content": text}


def example(name: str, *, complete: bool = True, size: int | None = None) -> Prompt | Unreadable:
    return read_prompt(
        path_of(name), content_type_of(name), "", load(name)[:size], complete=complete
    )


def example_prompt(name: str) -> Prompt:
    prompt = example(name)
    assert isinstance(prompt, Prompt), prompt
    return prompt


def shared_prefix(one: bytes, other: bytes) -> bytes:
    length = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), None)
    return (one if len(one) < len(other) else other)[:length]


def noisy_json(value: Any, random: Random, *, shuffle: bool) -> str:
    """The value as JSON with random whitespace and escapes, and random key order if asked for."""
    space = random.choice(["", "", " ", "\n", "\r\n\t "])
    if isinstance(value, dict):
        names = list(value)
        if shuffle:
            random.shuffle(names)
        members = (
            f"{space}{noisy_string(name, random)}{space}:{space}"
            f"{noisy_json(value[name], random, shuffle=shuffle)}"
            for name in names
        )
        return "{" + f"{space},".join(members) + space + "}"
    if isinstance(value, list):
        items = (space + noisy_json(item, random, shuffle=shuffle) for item in value)
        return "[" + f"{space},".join(items) + space + "]"
    if isinstance(value, str):
        return noisy_string(value, random)
    return json.dumps(value)


def noisy_string(text: str, random: Random) -> str:
    return '"' + "".join(_noisy_character(c, random) for c in text) + '"'


def _noisy_character(character: str, random: Random) -> str:
    escape = random.random() < 0.2
    return json.dumps(character, ensure_ascii=escape)[1:-1] if not escape else _hex(character)


def _hex(character: str) -> str:
    units = character.encode("utf-16-be")
    pairs = (units[i : i + 2].hex() for i in range(0, len(units), 2))
    return "".join(f"\\u{pair}" for pair in pairs)
