"""The content of a message: a string, or a list of parts, in the dialects of all chat APIs."""

from functools import lru_cache
from typing import Any, Final

from jiter import from_json

from extproc.prompt.content import (
    ARGUMENTS,
    CALL,
    END,
    FAILED,
    NAME,
    OTHER,
    REASONING,
    RESULT,
    Content,
    canonical,
    without_marks,
)

_TEXTS: Final = frozenset(
    {None, "text", "input_text", "output_text", "summary_text", "reasoning_text"}
)
_MEDIA: Final = frozenset(
    {
        "audio",
        "audio_embeds",
        "audio_url",
        "document",
        "file",
        "image",
        "image_embeds",
        "image_file",
        "image_pil",
        "image_url",
        "input_audio",
        "input_file",
        "input_image",
        "input_video",
        "prompt_embeds",
        "video",
        "video_embeds",
        "video_url",
    }
)
_CACHED_ARGUMENTS: Final = 512  # characters
_BILLING: Final = "x-anthropic-billing-header"


def last_name(value: Any) -> str | None:
    """The name of an object's last member: the one that a cut went through."""
    return next(reversed(value), None) if isinstance(value, dict) else None


def write_content(out: Content, value: Any, *, cut: bool, system: bool = False) -> None:
    """Write a message's content. Empty content of any form writes nothing.

    Args:
        out: Where to.
        value: A string, a list of parts, one part, or anything else.
        cut: Whether the body was cut inside ``value``.
        system: Whether the message is a system message. Those lose the line in which Claude Code
            puts a hash that changes with each request, as engines drop it too (vLLM #36829).
    """
    if isinstance(value, str):
        if system:
            value = _without_billing(value, cut=cut)
        if value:
            out.text(value)
    elif isinstance(value, list):
        _write_parts(out, value, cut=cut, system=system)
    elif value is not None:
        _write_part(out, value, cut=cut)


def _write_parts(out: Content, parts: list[Any], *, cut: bool, system: bool) -> None:
    if system:
        parts = _without_billing_parts(parts, cut=cut)
    if len(parts) == 1 and (text := _text(parts[0])) is not None:
        if text:
            out.text(text)
        return
    last = len(parts) - 1
    for index, part in enumerate(parts):
        _write_part(out, part, cut=cut and index == last)


def _text(part: Any) -> str | None:
    """The text of a part that is nothing but text."""
    if isinstance(part, str):
        return part
    if isinstance(part, dict):
        kind = _kind(part)
        text = part.get("text")
        if kind in _TEXTS and isinstance(text, str) and (kind or _MEDIA.isdisjoint(part)):
            return text
    return None


def _kind(part: dict[str, Any]) -> str | None:
    kind = part.get("type")
    return kind if kind is None or isinstance(kind, str) else ""


def _write_part(out: Content, part: Any, *, cut: bool) -> None:
    text = _text(part)
    if text is not None:
        out.text(text)
        return
    if not isinstance(part, dict):
        if not cut:
            out.json(OTHER, part)
        return
    kind = _kind(part)
    if kind == "tool_result":
        _write_tool_result(out, part, cut=cut)
    elif kind == "thinking" and isinstance(part.get("thinking"), str):
        out.frame(REASONING, part["thinking"])
    elif cut:
        return  # half a medium is another medium
    elif kind in _MEDIA or (kind is None and not _MEDIA.isdisjoint(part)):
        _write_medium(out, part)
    elif kind == "tool_use":
        write_call(out, part.get("id"), part.get("name"), part.get("input"))
    else:
        out.json(OTHER, without_marks(part))


def _write_medium(out: Content, part: dict[str, Any]) -> None:
    if part.get("type") is None and isinstance(part.get("text"), str):
        out.text(part["text"])
        part = {key: value for key, value in part.items() if key != "text"}
    uuid = part.get("uuid")
    # vLLM takes a client's uuid for the medium's hash; later turns may leave the data out.
    out.medium({"uuid": uuid} if isinstance(uuid, str) else part)


def _write_tool_result(out: Content, part: dict[str, Any], *, cut: bool) -> None:
    last = last_name(part) if cut else None
    identifier = part.get("tool_use_id")
    if cut and identifier is None:
        return
    out.frame(RESULT, identifier if isinstance(identifier, str) else "")
    if last == "tool_use_id":
        return
    write_content(out, part.get("content"), cut=last == "content")
    if not cut:
        if part.get("is_error"):
            out.frame(FAILED, "")
        out.frame(END, "")


def write_call(out: Content, identifier: Any, name: Any, arguments: Any) -> None:
    """Write a call of a tool by the model. Call it for complete calls only.

    Args:
        out: Where to.
        identifier: The call's id.
        name: The tool's name.
        arguments: An object, or a string that holds one: templates render its parsed form, so
            whitespace and key order do not count.
    """
    out.frame(CALL, identifier if isinstance(identifier, str) else "")
    out.frame(NAME, name if isinstance(name, str) else "")
    out.frame(ARGUMENTS, _arguments(arguments))


def _arguments(value: Any) -> str:
    if not isinstance(value, str):
        return canonical({} if value is None else value).decode()
    # An agent's every turn repeats the calls of all turns before.
    return _cached_arguments(value) if len(value) <= _CACHED_ARGUMENTS else _sorted(value)


def _sorted(text: str) -> str:
    if not text:
        return "{}"
    try:
        return canonical(from_json(text.encode())).decode()
    except ValueError:
        return text


_cached_arguments = lru_cache(maxsize=8192)(_sorted)


def _without_billing(text: str, *, cut: bool) -> str:
    if text.startswith(_BILLING) or (cut and _BILLING.startswith(text)):
        return text.partition("\n")[2]
    return text


def _without_billing_parts(parts: list[Any], *, cut: bool) -> list[Any]:
    kept = []
    for index, part in enumerate(parts):
        text = _text(part)
        if text is None:
            kept.append(part)
            continue
        rest = _without_billing(text, cut=cut and index == len(parts) - 1)
        if rest or not text:
            kept.append(rest)
    return kept
