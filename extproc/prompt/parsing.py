"""From body bytes to parsed JSON, whatever the bytes."""

import re
from typing import Any, Final, NamedTuple

from jiter import from_json

from extproc.prompt.model import Unreadable

_BOM: Final = b"\xef\xbb\xbf"
_PLACE: Final = re.compile(r"at line (\d+) column (\d+)$")
_ATTEMPTS: Final = 8
_REASONS: Final = (
    ("recursion limit", Unreadable.TOO_DEEP),
    ("unicode code point", Unreadable.NOT_UTF8),
    ("surrogate", Unreadable.SURROGATE),
    ("end of hex escape", Unreadable.SURROGATE),
)


class Fields:
    """A JSON object's members, and which of them the cut went through.

    Args:
        values: The members, in the order of the text.
        cut: Whether the text ended before the object did. Then its last member may be a part only.
    """

    __slots__ = ("_cut_name", "cut", "values")

    def __init__(self, values: dict[str, Any], *, cut: bool) -> None:
        self.values = values
        self.cut = cut
        self._cut_name = next(reversed(values), None) if cut else None

    def get(self, name: str) -> Any:
        """The member, or what there is of it; None if absent."""
        return self.values.get(name)

    def whole(self, name: str) -> Any:
        """The member, or None if it is absent or was cut."""
        return None if name == self._cut_name else self.values.get(name)

    def leading(self, name: str, follower: str) -> Any:
        """What there is of a member that the content puts before another.

        None if the cut went through it behind the other one in the text: the rest cannot be known,
        so every cut of such a body goes without it.
        """
        return self.whole(name) if follower in self.values else self.values.get(name)

    def is_cut(self, name: str) -> bool:
        """Whether the text ended in this member."""
        return name == self._cut_name


class Parsed(NamedTuple):
    """What was read of a body.

    Attributes:
        value: The JSON value, or what there is of it; None if nothing.
        cut: Whether the value went on behind what was read.
        problem: The fault that ended the reading, if it was no mere end of the bytes.
    """

    value: Any
    cut: bool
    problem: Unreadable | None


def parse(body: bytes, *, complete: bool) -> Parsed:
    """Parse a body, or the part of it before its end or its first fault.

    Args:
        body: Any bytes.
        complete: Whether the body ends here. A cut one may still hold the whole value.
    """
    body = body.removeprefix(_BOM)
    problem = None
    # The attempt is dear for a cut body: jiter counts the lines up to the missing end.
    if complete or body.rstrip().endswith(b"}"):
        try:
            return Parsed(from_json(body), False, None)
        except ValueError as error:
            problem = _reason(error) if complete else None
    for _ in range(_ATTEMPTS):
        try:
            value = from_json(body, partial_mode="trailing-strings")
        except ValueError as error:
            if not complete and _is_end(error):
                break
            problem = problem or _reason(error)
            body = body[: _offset(error, body)]
        else:
            return Parsed(value, True, problem)
    return Parsed(None, True, problem)


def _is_end(error: ValueError) -> bool:
    return str(error).startswith("EOF")


def _reason(error: ValueError) -> Unreadable:
    message = str(error)
    return next((why for part, why in _REASONS if part in message), Unreadable.BROKEN_JSON)


def _offset(error: ValueError, body: bytes) -> int:
    """The offset of the byte that jiter could not read, always inside the body."""
    place = _PLACE.search(str(error))
    if place is None:
        return 0
    line, column = map(int, place.groups())
    rest = body.split(b"\n", line - 1)[-1]
    return max(0, min(len(body) - len(rest) + column, len(body)) - 1)
