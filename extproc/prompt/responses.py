"""Responses (OpenAI): instructions, tools and items."""

from typing import Any, Final

from extproc.prompt.chat import split_system, write_message, write_opening
from extproc.prompt.checkpoints import checkpoints
from extproc.prompt.content import CALL_ID, MESSAGE, OTHER, PREVIOUS, REASONING, Content
from extproc.prompt.model import Api
from extproc.prompt.parsing import Fields
from extproc.prompt.parts import last_name, write_call, write_content

_OUTPUTS: Final = frozenset({"function_call_output", "custom_tool_call_output"})
_CALLS: Final = {"function_call": "arguments", "custom_tool_call": "input"}
_HISTORY: Final = frozenset({"previous_response_id", "conversation"})
_HEAD: Final = ("prompt", "chat_template_kwargs", "media_io_kwargs", "mm_processor_kwargs")


def read(fields: Fields, out: Content) -> Api | None:
    """Write a responses request.

    ``previous_response_id`` names turns that are not in the body and that no router has read: it
    is not followed. A ``conversation`` keeps its turns together.
    """
    head = {name: fields.whole(name) for name in _HEAD}
    reasoning = fields.whole("reasoning")
    if isinstance(reasoning, dict):
        head["reasoning_effort"] = reasoning.get("effort")
    items, cut = fields.get("input"), fields.is_cut("input")
    system, opening_cut = None, fields.is_cut("instructions")
    if instructions := fields.leading("instructions", "input"):
        system = {"role": "system", "content": instructions}
    elif _HISTORY.isdisjoint(fields.values):
        system, items = split_system(items, cut=cut)
        opening_cut = cut and not items
    write_opening(out, fields, head, system, before="input", cut=opening_cut)
    _write_history(out, fields)
    _write_input(out, items, cut=cut)
    return Api.RESPONSES


def _write_history(out: Content, fields: Fields) -> None:
    previous = fields.whole("previous_response_id")
    if isinstance(previous, str) and previous:
        out.frame(PREVIOUS, previous)
    conversation = fields.whole("conversation")
    if isinstance(conversation, dict):
        conversation = conversation.get("id")
    if isinstance(conversation, str) and conversation:
        out.conversation(conversation, checkpoints())


def _write_input(out: Content, value: Any, *, cut: bool) -> None:
    if isinstance(value, str):
        if value:
            write_message(out, {"role": "user", "content": value}, cut=cut)
    elif isinstance(value, list):
        last = len(value) - 1
        for index, item in enumerate(value):
            _write_item(out, item, cut=cut and index == last)


def _write_item(out: Content, item: Any, *, cut: bool) -> None:
    if not isinstance(item, dict):
        if not cut:
            out.json(OTHER, item)
        return
    kind = item.get("type")
    if kind == "message" or (kind is None and "role" in item):
        write_message(out, item, cut=cut)
    elif isinstance(kind, str) and kind in _OUTPUTS:
        _write_output(out, item, cut=cut)
    elif cut:
        return
    elif isinstance(kind, str) and kind in _CALLS:
        write_call(out, item.get("call_id"), item.get("name"), item.get(_CALLS[kind]))
    elif kind == "reasoning":
        _write_reasoning(out, item)
    else:
        out.json(OTHER, {k: v for k, v in item.items() if k != "status"})


def _write_output(out: Content, item: dict[str, Any], *, cut: bool) -> None:
    last = last_name(item) if cut else None
    if last == "type":
        return
    out.frame(MESSAGE, "tool")
    write_content(out, item.get("output"), cut=last == "output")
    if not cut and isinstance(identifier := item.get("call_id"), str):
        out.frame(CALL_ID, identifier)


def _write_reasoning(out: Content, item: dict[str, Any]) -> None:
    out.frame(MESSAGE, "reasoning")
    for name in ("summary", "content"):
        parts = item.get(name)
        for part in parts if isinstance(parts, list) else []:
            text = part.get("text") if isinstance(part, dict) else None
            if isinstance(text, str):
                out.frame(REASONING, text)
            else:
                out.json(OTHER, part)
    if encrypted := item.get("encrypted_content"):
        out.json(OTHER, encrypted)
