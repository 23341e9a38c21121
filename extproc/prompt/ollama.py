"""Ollama's native API."""

from typing import Final

from extproc.prompt.chat import write_chat, write_head, write_message
from extproc.prompt.completions import write_sequences
from extproc.prompt.content import SUFFIX, Content
from extproc.prompt.model import Api
from extproc.prompt.parsing import Fields

_HEAD: Final = ("template", "think")


def read_chat(fields: Fields, out: Content) -> Api | None:
    """Write a chat; images stand before their message's content, as Ollama puts them."""
    write_chat(out, fields, _HEAD)
    return Api.OLLAMA


def read_generate(fields: Fields, out: Content) -> Api | None:
    """Write a generate request: as plain text if raw, else as the chat that it is rendered as."""
    write_head(out, {name: fields.whole(name) for name in _HEAD})
    write_sequences(out, fields.whole("context"), cut=False)
    prompt, cut = fields.get("prompt"), fields.is_cut("prompt")
    if fields.whole("raw") is True:
        write_sequences(out, prompt, cut=cut)
    else:
        if system := fields.leading("system", "prompt"):
            write_message(out, {"role": "system", "content": system}, cut=fields.is_cut("system"))
        if prompt:
            message = {"role": "user", "images": fields.whole("images"), "content": prompt}
            write_message(out, message, cut=cut)
    if not fields.cut and isinstance(suffix := fields.get("suffix"), str) and suffix:
        out.frame(SUFFIX, suffix)
    return Api.OLLAMA


def read_embed(fields: Fields, out: Content) -> Api | None:
    """Write an embeddings request, of the current or the old form."""
    for name in ("input", "prompt"):
        write_sequences(out, fields.get(name), cut=fields.is_cut(name))
    return Api.OLLAMA
