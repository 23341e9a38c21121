"""Tokenize and detokenize (vLLM, SGLang, TGI, llama.cpp)."""

from extproc.prompt import chat
from extproc.prompt.completions import write_plain_head, write_sequences
from extproc.prompt.content import Content
from extproc.prompt.model import Api
from extproc.prompt.parsing import Fields


def read(fields: Fields, out: Content) -> Api | None:
    """Write a tokenize request, as a chat or as plain text, or a detokenize request."""
    if "messages" in fields.values:
        chat.read(fields, out)
    else:
        write_plain_head(out, fields)
        for name in ("prompt", "inputs", "content", "tokens"):
            write_sequences(out, fields.get(name), cut=fields.is_cut(name))
    return Api.TOKENIZE
