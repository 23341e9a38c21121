"""Edits change what they say, and nothing else, in whatever way a file is written."""

import json
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from extproc.check.edits import apply, assign, insert, remove_field
from extproc.check.nodes import Node, Source, read

KEYS = st.sampled_from(["a", "b_c", "d"])
SCALARS = st.one_of(st.integers(-5, 5), st.booleans(), st.text("ab #:'\"-{", max_size=4), st.none())
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)
MAPPINGS = st.dictionaries(KEYS, VALUES, max_size=3)
PATHS = st.lists(KEYS, min_size=1, max_size=3).map(tuple)
few = settings(max_examples=25, deadline=None)


def block(data: Any) -> str:
    return str(yaml.safe_dump(data, sort_keys=False))


def flow(data: Any) -> str:
    return str(yaml.safe_dump(data, sort_keys=False, default_flow_style=True))


def indented(data: Any) -> str:
    return json.dumps(data, indent=2)


STYLES = [block, flow, indented, json.dumps]


def root(text: str) -> Node:
    return read(Source("f", text))[0]


def assigned(data: Any, path: tuple[str, ...], value: Any) -> Any:
    inner = data.get(path[0])
    if len(path) == 1:
        return data | {path[0]: value}
    return data | {path[0]: assigned(inner if isinstance(inner, dict) else {}, path[1:], value)}


@pytest.mark.parametrize("style", STYLES)
@given(data=MAPPINGS, path=PATHS, value=VALUES)
@few
def test_assign(style: Any, data: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    text = style(data)

    changed = apply(text, assign(root(text), path, value))

    assert yaml.safe_load(changed) == assigned(data, path, value)
    if style in (indented, json.dumps):
        json.loads(changed)


@pytest.mark.parametrize("style", STYLES)
@given(items=st.lists(VALUES, max_size=3), index=st.integers(0, 3), value=VALUES)
@few
def test_insert(style: Any, items: list[Any], index: int, value: Any) -> None:
    text = style({"list": items, "z": 1})

    changed = apply(text, insert(root(text).at("list"), index, value))

    wanted = list(items)
    wanted.insert(index, value)
    assert yaml.safe_load(changed) == {"list": wanted, "z": 1}


@pytest.mark.parametrize("style", STYLES)
@given(
    data=MAPPINGS.filter(lambda data: len(data) > 1), place=st.integers(0, 2), item=st.booleans()
)
@few
def test_remove_field(style: Any, data: dict[str, Any], place: int, item: bool) -> None:
    """Of a mapping at the top, or in a list."""
    text = style([data] if item else data)
    name = list(data)[place % len(data)]
    mapping = root(text).items[0] if item else root(text)

    changed = apply(text, remove_field(mapping.at(name)))

    left = {key: data[key] for key in data if key != name}
    assert yaml.safe_load(changed) == ([left] if item else left)


def test_comments_and_blank_lines_stay() -> None:
    text = "# head\na: 1  # one\n\n# of b\nb:\n- x  # ex\n# last of b\n\nc: {d: e}  # flow\n"

    edits = [
        *assign(root(text), ("a",), 2),
        *insert(root(text).at("b"), 0, {"y": 1}),
        *assign(root(text), ("c", "f", "g"), value=True),
    ]

    assert apply(text, edits) == (
        "# head\na: 2  # one\n\n# of b\nb:\n- y: 1\n- x  # ex\n# last of b\n\n"
        "c: {d: e, f: {g: true}}  # flow\n"
    )


def test_an_item_goes_before_the_comments_of_the_next() -> None:
    text = "a:\n- 1\n# two\n- 2\n"

    assert apply(text, insert(root(text).at("a"), 1, 3)) == "a:\n- 1\n- 3\n# two\n- 2\n"


def test_of_edits_at_one_place_the_first_counts() -> None:
    text = "a: 1\n"
    edits = [*assign(root(text), ("b",), 2), *assign(root(text), ("c",), 3)]

    assert apply(text, edits) == "a: 1\nb: 2\n"
