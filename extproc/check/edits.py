"""Changes of a file's text that leave everything else, comments and order too, as it is."""

import json
import re
from collections.abc import Iterable
from typing import Any, NamedTuple

import yaml

from extproc.check.nodes import Node, camel

_NAME = re.compile(r"[a-z][a-z0-9_]*")


class Edit(NamedTuple):
    """Puts a text in place of another.

    Attributes:
        path: The file.
        start: Offset of the old text.
        end: Offset behind it; equal to ``start`` where something is put in between.
        text: The new text.
    """

    path: str
    start: int
    end: int
    text: str


def apply(text: str, edits: Iterable[Edit]) -> str:
    """The text with those edits that do not touch an earlier one of them."""
    done: list[Edit] = []
    for edit in dict.fromkeys(edits):
        if all(edit.end < other.start or other.end < edit.start for other in done):
            done.append(edit)
    for edit in sorted(done, reverse=True):
        text = text[: edit.start] + edit.text + text[edit.end :]
    return text


def assign(node: Node, path: tuple[str, ...], value: Any) -> tuple[Edit, ...]:
    """Give a field of a mapping a value, whatever of the path is there already.

    Args:
        node: A mapping.
        path: Names of fields as Envoy's protos have them.
        value: What a YAML file can say.
    """
    if not node.source.editable or not node.is_mapping:
        return ()
    child = node.at(path[0])
    if child.raw is None:
        for name in reversed(path[1:]):
            value = {name: value}
        return _add_field(node, path[0], value)
    if len(path) > 1 and child.is_mapping and child.fields:
        return assign(child, path[1:], value)
    for name in reversed(path[1:]):
        value = {name: value}
    return _replace(child, value)


def insert(sequence: Node, index: int, value: Any) -> tuple[Edit, ...]:
    """Put an item into a sequence, before the item of that number or at the end."""
    source = sequence.source
    raw = sequence.raw
    if not source.editable or not isinstance(raw, yaml.SequenceNode):
        return ()
    items = raw.value
    if raw.flow_style or not items:
        return _insert_flow(sequence, index, value)
    dash = sequence.raw.start_mark.column if sequence.raw else 0
    rendered = _block([_named(sequence, value)], dash)
    if index >= len(items):
        end = _end(sequence, items[-1])
        return (Edit(source.path, end, end, "\n" + " " * dash + rendered),)
    line = items[index].start_mark.line
    while line and _is_comment(_line(sequence, line - 1)):
        line -= 1
    start = source.starts[line]
    if _line(sequence, line)[:dash].strip():  # the first item stands behind its key's colon
        return ()
    return (Edit(source.path, start, start, " " * dash + rendered + "\n"),)


def remove_field(node: Node) -> tuple[Edit, ...]:
    """Take a field out of a mapping that has others, with the lines that it has for itself."""
    source, raw, parent = node.source, node.raw, node.parent
    if not source.editable or raw is None or parent is None or len(parent.fields) < 2:
        return ()
    assert isinstance(parent.raw, yaml.MappingNode)
    entries = parent.raw.value
    place = next(number for number, (_, value) in enumerate(entries) if value is raw)
    start, end = source.offset(node.mark), _end(node, raw, entries[place][0])
    line = source.starts[node.mark.line]
    if not parent.raw.flow_style and not source.text[line:start].strip():
        end = source.text.find("\n", end)
        return (Edit(source.path, line, end + 1 or len(source.text), ""),)
    if place + 1 < len(entries):  # in flow style, or behind the dash of an item
        return (Edit(source.path, start, source.offset(entries[place + 1][0].start_mark), ""),)
    before = _end(parent, entries[place - 1][1], entries[place - 1][0])
    return (Edit(source.path, before, end, ""),)


def _add_field(node: Node, name: str, value: Any) -> tuple[Edit, ...]:
    source, raw = node.source, node.raw
    assert isinstance(raw, yaml.MappingNode)
    data = _named(node, {name: value})
    if raw.flow_style or not raw.value:
        return _add_flow_field(node, data)
    column = raw.value[0][0].start_mark.column
    end = _end(node, raw.value[-1][1], raw.value[-1][0])
    return (Edit(source.path, end, end, "\n" + " " * column + _block(data, column)),)


def _add_flow_field(node: Node, data: dict[str, Any]) -> tuple[Edit, ...]:
    source, raw = node.source, node.raw
    assert isinstance(raw, yaml.MappingNode)
    if not raw.value:
        start, end = source.offset(raw.start_mark), source.offset(raw.end_mark)
        return (Edit(source.path, start, end, _flow(node, data, 0)),)
    last_key, last = raw.value[-1]
    end = _end(node, last, last_key)
    multiline = raw.end_mark.line > last.end_mark.line
    column = last_key.start_mark.column if multiline else 0
    inner = _flow(node, data, max(column - 2, 0))[1:-1].strip()
    separator = ",\n" + " " * column if multiline else ", "
    return (Edit(source.path, end, end, separator + inner),)


def _insert_flow(sequence: Node, index: int, value: Any) -> tuple[Edit, ...]:
    source, raw = sequence.source, sequence.raw
    assert isinstance(raw, yaml.SequenceNode)
    if not raw.value:
        start, end = source.offset(raw.start_mark), source.offset(raw.end_mark)
        return (Edit(source.path, start, end, _flow(sequence, [value], 0)),)
    first, last = raw.value[0], raw.value[-1]
    multiline = raw.end_mark.line > last.end_mark.line
    column = first.start_mark.column if multiline else 0
    item = _flow(sequence, value, column)
    separator = ",\n" + " " * column if multiline else ", "
    if index < len(raw.value):
        at = source.offset(raw.value[index].start_mark)
        return (Edit(source.path, at, at, item + separator),)
    end = _end(sequence, last)
    return (Edit(source.path, end, end, separator + item),)


def _replace(node: Node, value: Any) -> tuple[Edit, ...]:
    source, raw = node.source, node.raw
    assert raw is not None
    assert node.parent is not None
    start, end = _behind_colon(node), _end(node, raw)
    if not isinstance(value, dict | list) or not value:
        return (Edit(source.path, start, end, " " + _scalar(node, value)),)
    if getattr(node.parent.raw, "flow_style", False) or _is_json(node):
        return (Edit(source.path, start, end, " " + _flow(node, value, 0)),)
    column = node.mark.column if isinstance(value, list) else node.mark.column + 2
    text = "\n" + " " * column + _block(_named(node, value), column)
    return (Edit(source.path, start, end, text),)


def _behind_colon(node: Node) -> int:
    """Where the value of a field may start."""
    assert node.parent is not None
    assert isinstance(node.parent.raw, yaml.MappingNode)
    key = next(key for key, value in node.parent.raw.value if value is node.raw)
    return node.source.text.index(":", node.source.offset(key.end_mark)) + 1


def _end(node: Node, raw: yaml.Node, key: yaml.Node | None = None) -> int:
    """Where a value's last character is; the parser's own end has the blanks behind it."""
    source = node.source
    while isinstance(raw, yaml.CollectionNode) and not raw.flow_style and raw.value:
        last = raw.value[-1]
        key, raw = last if isinstance(last, tuple) else (None, last)
    start, end = source.offset(raw.start_mark), source.offset(raw.end_mark)
    if start == end and key is not None:  # nothing behind the colon
        return source.text.index(":", source.offset(key.end_mark)) + 1
    return start + len(source.text[start:end].rstrip())


def _line(node: Node, number: int) -> str:
    starts = node.source.starts
    end = starts[number + 1] if number + 1 < len(starts) else len(node.source.text)
    return node.source.text[starts[number] : end]


def _is_comment(line: str) -> bool:
    return line.lstrip().startswith("#")


def _is_json(node: Node) -> bool:
    return node.source.text.lstrip().startswith("{")


def _named(node: Node, value: Any) -> Any:
    """Field names in the spelling that the file uses."""
    if not any(word in node.source.text for word in ("typedConfig", "staticResources")):
        return value
    if isinstance(value, dict):
        return {
            camel(key) if _NAME.fullmatch(key) else key: _named(node, each)
            for key, each in value.items()
        }
    return [_named(node, each) for each in value] if isinstance(value, list) else value


def _block(value: Any, column: int) -> str:
    text = yaml.safe_dump(value, sort_keys=False, width=1000, allow_unicode=True)
    return text.replace("'@type'", '"@type"').rstrip("\n").replace("\n", "\n" + " " * column)


def _flow(node: Node, value: Any, column: int) -> str:
    value = _named(node, value)
    if _is_json(node):
        indent = 2 if column else None  # as a file that has its fields on lines of their own
        return json.dumps(value, indent=indent).replace("\n", "\n" + " " * column)
    text = yaml.safe_dump(value, sort_keys=False, width=100_000, default_flow_style=True)
    return text.replace("'@type'", '"@type"').strip().removesuffix("...").strip()


def _scalar(node: Node, value: Any) -> str:
    if _is_json(node):
        return json.dumps(value)
    return str(yaml.safe_dump(value, width=100_000)).strip().removesuffix("...").strip()
