"""Completions (OpenAI, llama.cpp): a text, token ids, or a list of either."""

from typing import Any

from extproc.prompt.chat import write_head
from extproc.prompt.content import OTHER, SUFFIX, TEXT, Content
from extproc.prompt.model import Api
from extproc.prompt.parsing import Fields


def read(fields: Fields, out: Content) -> Api | None:
    """Write a completions request."""
    write_plain_head(out, fields)
    # In vLLM embeddings come before the text prompts of the same request.
    write_embeddings(out, fields.whole("prompt_embeds"))
    write_sequences(out, fields.get("prompt"), cut=fields.is_cut("prompt"))
    if not fields.cut and isinstance(suffix := fields.get("suffix"), str) and suffix:
        out.frame(SUFFIX, suffix)
    return Api.COMPLETIONS


def write_plain_head(out: Content, fields: Fields) -> None:
    """Write that no special tokens are added: without the first one nothing is shared."""
    if fields.whole("add_special_tokens") is False:
        write_head(out, {"without_special_tokens": True})


def write_embeddings(out: Content, value: Any) -> None:
    """Write embeddings that stand for a prompt by their hash: one, or a list of encoded ones."""
    several = isinstance(value, list) and value and isinstance(value[0], str)
    for item in value if several else [value]:
        if item:
            out.medium(item)


def write_sequences(out: Content, value: Any, *, cut: bool, mark: bytes = TEXT) -> None:
    """Write one prompt or several: a string, token ids, or a list of these.

    A list of one is equal to the one. A cut list of token ids loses its last, of which digits may
    be missing.
    """
    if isinstance(value, str):
        if value:
            out.text(value, mark)
    elif isinstance(value, list):
        if value and isinstance(value[0], int):
            _write_ids(out, value, cut=cut)
        elif len(value) == 1:
            write_sequences(out, value[0], cut=cut, mark=mark)
        else:
            last = len(value) - 1
            for index, item in enumerate(value):
                _write_sequence(out, item, cut=cut and index == last, mark=mark)
    elif value is not None and not cut:
        out.json(OTHER, value)


def _write_sequence(out: Content, item: Any, *, cut: bool, mark: bytes) -> None:
    if isinstance(item, str):
        out.text(item, mark)
    elif isinstance(item, list):
        _write_ids(out, item, cut=cut)
    elif not cut:
        out.json(OTHER, item)


def _write_ids(out: Content, ids: list[Any], *, cut: bool) -> None:
    if cut:
        ids = ids[:-1]
        if not all(isinstance(item, int) for item in ids[:1]):
            return
    if ids:
        out.tokens(ids)
