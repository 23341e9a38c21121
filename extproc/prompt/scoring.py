"""Rerank and score: the query first, because a cross-encoder reads it before each document."""

from typing import Any, Final

from extproc.prompt.chat import write_head
from extproc.prompt.completions import write_sequences
from extproc.prompt.content import DOCUMENT, QUERY, Content
from extproc.prompt.model import Api
from extproc.prompt.parsing import Fields
from extproc.prompt.parts import last_name, write_content

_QUERIES: Final[tuple[str, ...]] = ("query", "queries", "text_1", "data_1")
_DOCUMENTS: Final[tuple[str, ...]] = ("documents", "texts", "text_2", "data_2", "items")
_HEAD: Final = ("chat_template", "chat_template_kwargs", "instruction", "mm_processor_kwargs")


def read_rerank(fields: Fields, out: Content) -> Api | None:
    """Write a rerank request of Cohere, Jina, vLLM or TEI."""
    _write(fields, out)
    return Api.RERANK


def read_score(fields: Fields, out: Content) -> Api | None:
    """Write a score request of vLLM or SGLang."""
    _write(fields, out)
    return Api.SCORE


def _write(fields: Fields, out: Content) -> None:
    write_head(out, {name: fields.whole(name) for name in _HEAD})
    order = [(QUERY, _QUERIES), (DOCUMENT, _DOCUMENTS)]
    if fields.whole("item_first") is True:
        order.reverse()
    for mark, names in order:
        for name in names:
            _write_inputs(out, mark, fields.get(name), cut=fields.is_cut(name))


def _write_inputs(out: Content, mark: bytes, value: Any, *, cut: bool) -> None:
    if isinstance(value, list) and not (value and isinstance(value[0], int)):
        last = len(value) - 1
        for index, item in enumerate(value):
            _write_input(out, mark, item, cut=cut and index == last)
    else:
        _write_input(out, mark, value, cut=cut)


def _write_input(out: Content, mark: bytes, value: Any, *, cut: bool) -> None:
    if isinstance(value, str):
        out.text(value, mark)
    elif isinstance(value, dict):
        out.frame(mark, "")
        last = last_name(value) if cut else None
        if "content" in value:
            write_content(out, value["content"], cut=last == "content")
        else:
            write_content(out, value, cut=cut)
    elif value is not None:
        out.frame(mark, "")
        write_sequences(out, value, cut=cut)
