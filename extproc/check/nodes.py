"""YAML and JSON as a tree whose nodes know where they stand.

Names of fields are asked for as Envoy's protos spell them; ``lowerCamelCase``, which Envoy reads as
well, is found too.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any, Self

import yaml

_BREAK = re.compile(r"\r\n|[\n\r\x85\u2028\u2029]")
_DURATION = re.compile(r"(-?\d+(?:\.\d+)?)(ms|s|m|h)")  # s is Envoy's; the others are Kubernetes'
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_TRUE = {"true", "yes", "on", "y"}

_Loader: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class UnreadableError(Exception):
    """A file cannot be read as YAML or JSON. The message says where and why."""


@dataclass(frozen=True)
class Source:
    """A file's text.

    Attributes:
        path: As the user named it.
        text: All of it.
        line: Added to line numbers: where the text stands in another file.
        column: Likewise for columns.
        editable: Whether offsets into the text are offsets into the file.
    """

    path: str
    text: str
    line: int = 0
    column: int = 0
    editable: bool = True

    @cached_property
    def starts(self) -> list[int]:
        """The offset of each line."""
        return [0, *(match.end() for match in _BREAK.finditer(self.text))]

    def offset(self, mark: yaml.Mark) -> int:
        """Where a mark of the parser stands in the text."""
        return min(self.starts[mark.line] + mark.column, len(self.text))


@dataclass(frozen=True, eq=False)
class Node:
    """A value in a file, or the place where it would be.

    Attributes:
        source: The file.
        raw: The parser's node; None where there is no such value.
        mark: Where the value's key (or the item) starts; of a missing value, its nearest parent's.
        parent: The node around it.
        key: Its key or its number in the parent.
    """

    source: Source
    raw: yaml.Node | None
    mark: yaml.Mark
    parent: Self | None = field(default=None, repr=False)
    key: str | int = ""

    @property
    def present(self) -> bool:
        """Whether the file has it. A null counts as absent, as it does for Envoy."""
        return self.raw is not None and self.raw.tag != "tag:yaml.org,2002:null"

    @property
    def line(self) -> int:
        """Line in the file, from 1."""
        return int(self.mark.line) + 1 + self.source.line

    @property
    def column(self) -> int:
        """Column in the file, from 1."""
        return int(self.mark.column) + 1 + self.source.column

    @property
    def is_mapping(self) -> bool:
        """Whether it has fields."""
        return isinstance(self.raw, yaml.MappingNode)

    @property
    def is_sequence(self) -> bool:
        """Whether it has items."""
        return isinstance(self.raw, yaml.SequenceNode)

    @cached_property
    def fields(self) -> dict[str, Self]:
        """Its fields, if it is a mapping."""
        if not isinstance(self.raw, yaml.MappingNode):
            return {}
        return {
            key.value: type(self)(self.source, value, key.start_mark, self, key.value)
            for key, value in self.raw.value
            if isinstance(key, yaml.ScalarNode)
        }

    @cached_property
    def items(self) -> list[Self]:
        """Its items, if it is a sequence."""
        if not isinstance(self.raw, yaml.SequenceNode):
            return []
        return [
            type(self)(self.source, value, value.start_mark, self, number)
            for number, value in enumerate(self.raw.value)
        ]

    def at(self, *path: str) -> Self:
        """The value at a path of field names; absent if any of them is."""
        node = self
        for name in path:
            found = node.fields.get(name) or node.fields.get(camel(name))
            node = found or type(self)(self.source, None, node.mark, node, name)
        return node

    def has(self, *names: str) -> bool:
        """Whether it has one of these fields, be it null."""
        fields = self.fields
        return any(name in fields or camel(name) in fields for name in names)

    @property
    def text(self) -> str:
        """A scalar as it is written; empty for everything else."""
        return str(self.raw.value) if isinstance(self.raw, yaml.ScalarNode) and self.present else ""

    @property
    def flag(self) -> bool:
        """Whether it is true; false if absent."""
        return self.text.lower() in _TRUE

    @property
    def number(self) -> float | None:
        """A number, also one in quotes."""
        try:
            return float(self.text)
        except ValueError:
            return None

    @property
    def seconds(self) -> float | None:
        """A duration."""
        match = _DURATION.fullmatch(self.text)
        return float(match[1]) * _UNITS[match[2]] if match else None

    @property
    def message(self) -> str:
        """The short name of the message that its ``@type`` tells."""
        return self.at("@type").text.rpartition(".")[2]

    def walk(self) -> Iterator[Self]:
        """Itself and everything in it, in the order of the file."""
        yield self
        for child in (*self.fields.values(), *self.items):
            yield from child.walk()

    def within(self, other: Self) -> bool:
        """Whether it is inside the other, or the same."""
        node: Self | None = self
        while node is not None and node.raw is not other.raw:
            node = node.parent
        return node is not None

    @property
    def data(self) -> Any:
        """What it says, as plain dicts, lists and scalars."""
        return yaml.SafeLoader("").construct_document(self.raw) if self.present else None

    def texts(self) -> list[str]:
        """The scalars of a sequence."""
        return [item.text for item in self.items]


@cache
def camel(name: str) -> str:
    """``lowerCamelCase`` of a field's name."""
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def read(source: Source) -> list[Node]:
    """The documents of a file.

    Raises:
        UnreadableError: If it is no YAML or JSON.
    """
    text = source.text
    if text.lstrip().startswith("{"):
        text = text.replace("\t", " ")  # JSON's blanks, which YAML forbids between tokens
    try:
        found = list(yaml.compose_all(text, Loader=_Loader))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = (
            f"{source.line + mark.line + 1}:{source.column + mark.column + 1}" if mark else "1:1"
        )
        raise UnreadableError(f"{source.path}:{place}: no YAML or JSON: {error.problem}") from None
    except (yaml.YAMLError, RecursionError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UnreadableError(f"{source.path}: no YAML or JSON: {reason}") from None
    return [Node(source, raw, raw.start_mark) for raw in found]


def embedded(node: Node) -> Source | None:
    """The text of a literal block (``|``), such as a file in a ConfigMap, as a source."""
    raw = node.raw
    if not isinstance(raw, yaml.ScalarNode) or raw.style != "|" or "\n" not in raw.value:
        return None
    lines = node.source.text.splitlines()
    first = raw.start_mark.line + 1
    if first >= len(lines):
        return None
    indent = len(lines[first]) - len(lines[first].lstrip())
    return Source(node.source.path, raw.value, node.source.line + first, indent, editable=False)
