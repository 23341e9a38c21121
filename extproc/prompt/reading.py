"""From a request body to its prompt."""

from dataclasses import replace
from typing import Any, Final

from extproc.prompt.apis import Reader, find_reader
from extproc.prompt.compression import coding_of, unpack
from extproc.prompt.content import CUT, Content, canonical
from extproc.prompt.headers import unreadable_body
from extproc.prompt.model import Api, Prompt, ToolsPlace, Unreadable
from extproc.prompt.parsing import Fields, parse
from extproc.prompt.sessions import session_of

UNPACKED_LIMIT: Final = 512 * 1024
"""Most bytes to unpack of a compressed body where nobody says."""

_SALTS: Final = {
    "model": b"\xffm",
    "cache_salt": b"\xffs",
    "lora_path": b"\xffl",
    "extra_key": b"\xffk",
    "parameters": b"\xffa",
}
"""What keeps equal contents apart in an engine, and its mark. An adapter is a model."""


def read_prompt(
    path: str,
    content_type: str,
    content_encoding: str,
    body: bytes,
    *,
    complete: bool,
    text_limit: int = 4096,
    tools_place: ToolsPlace = ToolsPlace.FIRST,
    session_field: str = "",
    unpacked_limit: int = UNPACKED_LIMIT,
) -> Prompt | Unreadable:
    """Read the prompt of a request.

    Equal prompts give equal content whatever the JSON's key order, whitespace or escapes, and the
    next turn of a chat extends the content of the turn before. The content of a cut body is a
    prefix of the full body's, if the fields that come first in the content come first in the
    text too. Takes time linear in the body; pass no more of it than the inspect window.

    Args:
        path: ``:path``, with its query string.
        content_type: The header, or empty.
        content_encoding: The header, or empty.
        body: All that is known of the body; any bytes.
        complete: Whether that is the whole body.
        text_limit: Characters of the messages' text to keep.
        tools_place: Where the model's chat template puts the definitions of tools.
        session_field: The field that names the request's session, dots between the names of
            objects in each other: ``metadata.session_id``. Empty for none.
        unpacked_limit: Most bytes to unpack of a compressed body. What lies behind is cut.

    Returns:
        The prompt, with ``problem`` telling what kept a part of the body from being read, or why
        there is none. Never raises, whatever the bytes.
    """
    if reason := unreadable_body(path, content_type, content_encoding):
        return reason
    if not body:
        return Unreadable.NO_BODY
    size = len(body)
    if coding := coding_of(content_encoding):
        body = unpack(coding, body, unpacked_limit)
        complete = complete and len(body) < unpacked_limit
    reader = find_reader(path)
    if reader is None:
        prompt = _raw(body, complete, text_limit, size)
        return replace(prompt, session=_session_in(body, complete, session_field))
    out = Content(text_limit, tools_place)
    return _read(reader, body, complete, out, size=size, session_field=session_field)


def _read(
    reader: Reader, body: bytes, complete: bool, out: Content, *, size: int, session_field: str
) -> Prompt | Unreadable:
    parsed = parse(body, complete=complete)
    if not isinstance(parsed.value, dict):
        return parsed.problem or Unreadable.NO_PROMPT_FIELD
    fields = Fields(parsed.value, cut=parsed.cut)
    api = reader(fields, out)
    cut = parsed.cut and not complete
    session = session_of(fields, session_field)
    if api is None and not cut:  # behind a cut the field may come that tells the API
        prompt = _raw(body, complete, out.text_limit, size, parsed.problem)
        return replace(prompt, session=session)
    content, media, text = out.finish()
    if api is None or not content:
        return parsed.problem or Unreadable.NO_PROMPT_FIELD
    return Prompt(
        api=api,
        content=content,
        salt=_salt(fields) + (CUT if cut else b""),
        media=media,
        text=text or content[: out.text_limit],
        cache_key=_string(fields.whole("prompt_cache_key")),
        model=_string(fields.whole("model")),
        cut=cut,
        problem=parsed.problem,
        size=size,
        session=session,
    )


def _session_in(body: bytes, complete: bool, field: str) -> str:
    """The session that a JSON body of an unknown API names."""
    if not field:
        return ""
    parsed = parse(body, complete=complete)
    known = isinstance(parsed.value, dict)
    return session_of(Fields(parsed.value, cut=parsed.cut), field) if known else ""


def _raw(
    body: bytes, complete: bool, text_limit: int, size: int, problem: Unreadable | None = None
) -> Prompt:
    """Raw bytes are a prefix of the full body's whatever follows, so no salt marks the cut."""
    return Prompt(
        api=Api.RAW,
        content=body,
        text=body[:text_limit],
        cut=not complete,
        problem=problem,
        size=size,
    )


def _string(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _salt(fields: Fields) -> bytes:
    salt = b""
    for name, mark in _SALTS.items():
        if name not in fields.values:
            continue
        value = fields.whole(name)
        if name == "parameters":  # TGI
            value = value.get("adapter_id") if isinstance(value, dict) else None
        if isinstance(value, str):
            salt += mark + value.encode() if value else b""
        elif value is not None:
            salt += mark + b"\xffj" + canonical(value)
    return salt
