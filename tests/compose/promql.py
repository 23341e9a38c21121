"""Which series a PromQL expression asks for: a tokenizer, not a parser."""

import re
from collections.abc import Iterator
from typing import NamedTuple

_TOKEN = re.compile(
    r"""
    \s+ | \#.*
    | (?P<string> "(?:[^"\\]|\\.)*" | '(?:[^'\\]|\\.)*' )
    | (?P<range> \[ [^\]]* \] )
    | (?P<number> \d[\w.]* )
    | (?P<name> [A-Za-z_:][\w:]* )
    | (?P<sign> [=!]~ | [=!<>]= | . )
    """,
    re.VERBOSE,
)
_LISTS = {"by", "without", "on", "ignoring", "group_left", "group_right"}
_WORDS = {"and", "or", "unless", "bool", "offset"}


class Names(NamedTuple):
    """What an expression names."""

    metrics: frozenset[str]
    labels: frozenset[str]


def names(expression: str) -> Names:
    """The metrics and labels of an expression."""
    metrics, labels = set(), set()
    tokens = list(_tokens(expression))
    inside = ""
    for (kind, text), (_, after) in zip(tokens, [*tokens[1:], ("", "")], strict=True):
        if kind == "name" and inside:
            labels.add(text)
        elif kind == "name" and text in _LISTS:
            inside = ")"
        elif text == "{":
            inside = "}"
        elif text == inside:
            inside = ""
        elif kind == "name" and text not in _WORDS and after not in {"(", *_LISTS}:
            metrics.add(text)
    return Names(frozenset(metrics), frozenset(labels))


def _tokens(expression: str) -> Iterator[tuple[str, str]]:
    for match in _TOKEN.finditer(expression):
        if match.lastgroup and match.lastgroup != "range":
            yield match.lastgroup, match[0]
