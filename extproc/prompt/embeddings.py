"""Embeddings, pooling and classification: plain, as a chat, or with parts of several media."""

from typing import Any, Final

from extproc.prompt import chat
from extproc.prompt.chat import write_head, write_messages
from extproc.prompt.completions import write_plain_head, write_sequences
from extproc.prompt.content import DOCUMENT, Content
from extproc.prompt.model import Api
from extproc.prompt.parsing import Fields
from extproc.prompt.parts import write_content

_HEAD: Final = ("input_type", "instruction", "prompt_name", "task")


def read(fields: Fields, out: Content) -> Api | None:
    """Write an embeddings request of OpenAI, vLLM, SGLang, Cohere or TEI."""
    if "messages" in fields.values:
        chat.read(fields, out)
        return Api.EMBEDDINGS
    write_plain_head(out, fields)
    write_head(out, {name: fields.whole(name) for name in _HEAD})
    for name in ("input", "inputs", "texts"):
        _write_input(out, fields.get(name), cut=fields.is_cut(name))
    images = fields.whole("images")
    for image in images if isinstance(images, list) else ():
        out.medium(image)
    return Api.EMBEDDINGS


def _write_input(out: Content, value: Any, *, cut: bool) -> None:
    first = value[0] if isinstance(value, list) and value else None
    if isinstance(first, list) and first and isinstance(first[0], dict):
        write_messages(out, value, cut=cut)
    elif not isinstance(first, dict):
        write_sequences(out, value, cut=cut)
    elif "role" in first:
        write_messages(out, value, cut=cut)
    else:
        last = len(value) - 1
        for index, item in enumerate(value):
            _write_item(out, item, cut=cut and index == last)


def _write_item(out: Content, item: Any, *, cut: bool) -> None:
    if cut and not item:
        return
    out.frame(DOCUMENT, "")
    nested = isinstance(item, dict) and "content" in item
    write_content(out, item["content"] if nested else item, cut=cut)
