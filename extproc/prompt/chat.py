"""Chat completions (OpenAI), and what other chat APIs share with them."""

from collections.abc import Iterable
from typing import Any, Final

from extproc.prompt.content import (
    BATCH,
    CALL_ID,
    HEAD,
    MESSAGE,
    NAME,
    OTHER,
    REASONING,
    Content,
)
from extproc.prompt.model import Api, ToolsPlace
from extproc.prompt.parsing import Fields
from extproc.prompt.parts import last_name, write_call, write_content

_HEAD: Final = frozenset(
    {
        "add_special_tokens",
        "chat_template",
        "chat_template_kwargs",
        "documents",
        "instruction",
        "media_io_kwargs",
        "mm_processor_kwargs",
        "reasoning_effort",
    }
)
"""Fields that change the head of what a chat template renders. False and empty are defaults."""
_SYSTEMS: Final = ("system", "developer")  # no set: what is looked for may be of any type
_RARE: Final = frozenset({"audio", "function_call", "refusal", "task", "tools"})


def read(fields: Fields, out: Content) -> Api | None:
    """Write a chat request: tools, what else changes the head, then each message."""
    write_chat(out, fields, _HEAD)
    return Api.CHAT


def write_chat(out: Content, fields: Fields, head: Iterable[str]) -> None:
    """Write ``messages`` and what stands before them.

    Args:
        out: Where to.
        fields: The request's.
        head: Names of the fields that change the head of what a chat template renders.
    """
    messages, cut = fields.get("messages"), fields.is_cut("messages")
    system, rest = split_system(messages, cut=cut)
    write_opening(
        out,
        fields,
        {name: fields.whole(name) for name in head if name in fields.values},
        system,
        before="messages",
        cut=cut and not rest,
    )
    write_messages(out, rest, cut=cut)


def split_system(messages: Any, *, cut: bool) -> tuple[dict[str, Any] | None, Any]:
    """The system message in front, if there is one, and the other messages.

    Args:
        messages: A request's messages or items.
        cut: Whether the body was cut inside them.
    """
    first = messages[0] if isinstance(messages, list) and messages else None
    if not isinstance(first, dict) or first.get("role") not in _SYSTEMS:
        return None, messages
    if cut and len(messages) == 1 and last_name(first) == "role":
        return None, messages  # half a role
    return first, messages[1:]


def write_opening(
    out: Content,
    fields: Fields,
    head: dict[str, Any],
    system: dict[str, Any] | None,
    *,
    before: str,
    cut: bool,
) -> None:
    """Write tools, head and system message, in the order of the pool's chat template.

    Templates disagree, so equal tools behind different system messages are shared in one engine
    and not in the other, and the same the other way round.

    Args:
        out: Where to.
        fields: The request's.
        head: What else changes the head of what a chat template renders.
        system: The system message, or None.
        before: The field that the tools stand before.
        cut: Whether the body was cut inside the system message. Nothing is known of what follows.
    """
    late = system is not None and out.tools_place is ToolsPlace.AFTER_SYSTEM
    if not late:
        _write_tools(out, fields, before=before)
    write_head(out, head)
    if system is not None:
        write_message(out, system, cut=cut)
    if late and not cut:
        _write_tools(out, fields, before=before)


def _write_tools(out: Content, fields: Fields, *, before: str) -> None:
    """Write ``tools`` and the older ``functions``; of a list that was cut, what is whole."""
    for name in ("tools", "functions"):
        tools = fields.leading(name, before)
        if isinstance(tools, list) and tools:
            out.tools(tools[:-1] if fields.is_cut(name) else tools)


def write_head(out: Content, head: dict[str, Any]) -> None:
    """Write those of the head's fields that differ from a default."""
    shown = {name: value for name, value in head.items() if value}
    if shown:
        out.json(HEAD, shown)


def write_messages(out: Content, messages: Any, *, cut: bool) -> None:
    """Write messages in order; a list among them is a conversation of a batch."""
    if not isinstance(messages, list):
        return
    last = len(messages) - 1
    for index, message in enumerate(messages):
        message_cut = cut and index == last
        if isinstance(message, dict):
            write_message(out, message, cut=message_cut)
        elif isinstance(message, list):
            out.frame(BATCH, "")
            write_messages(out, message, cut=message_cut)
        elif not message_cut:
            out.json(OTHER, message)


def write_message(out: Content, message: dict[str, Any], *, cut: bool) -> None:
    """Write one message: role, name, images (Ollama), content, then what hangs on it.

    Of a message that was cut nothing behind its content is written, because more of the content
    may follow in the full one. So a cut body gives a prefix of the full body's prompt bytes as
    long as role and name stand before the content in the text; behind the cut they are absent.
    """
    last = last_name(message) if cut else None
    role = message.get("role")
    role = role if isinstance(role, str) else ""
    out.frame(MESSAGE, role)
    if last == "role":
        return
    name = message.get("name")
    if isinstance(name, str):
        out.frame(NAME, name)
    if last == "name":
        return
    images = message.get("images")
    if isinstance(images, list) and last != "images":
        for image in images:
            out.medium(image)
    write_content(out, message.get("content"), cut=last == "content", system=role == "system")
    if not cut and (len(message) > 2 or "content" not in message):
        _write_attachments(out, message)


def _write_attachments(out: Content, message: dict[str, Any]) -> None:
    calls = message.get("tool_calls")
    if isinstance(calls, list):
        for call in calls:
            _write_tool_call(out, call)
    for name in ("reasoning", "reasoning_content", "thinking"):
        reasoning = message.get(name)
        if isinstance(reasoning, str) and reasoning:
            out.frame(REASONING, reasoning)
            break
    identifier = message.get("tool_call_id") or message.get("tool_name")
    if isinstance(identifier, str):
        out.frame(CALL_ID, identifier)
    if not _RARE.isdisjoint(message):
        _write_rare_attachments(out, message)


def _write_rare_attachments(out: Content, message: dict[str, Any]) -> None:
    if message.get("function_call") is not None:
        _write_tool_call(out, {"function": message["function_call"]})
    if isinstance(tools := message.get("tools"), list):
        out.tools(tools)
    rest = {name: message[name] for name in ("audio", "refusal", "task") if message.get(name)}
    if rest:
        out.json(OTHER, rest)


def _write_tool_call(out: Content, call: Any) -> None:
    function = call.get("function") if isinstance(call, dict) else None
    if isinstance(function, dict):
        write_call(out, call.get("id"), function.get("name"), function.get("arguments"))
    else:
        out.json(OTHER, call)
