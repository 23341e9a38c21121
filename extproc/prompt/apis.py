"""Which reader reads which path."""

from collections.abc import Callable
from functools import lru_cache
from typing import Final

from extproc.prompt import (
    anthropic,
    chat,
    completions,
    embeddings,
    generation,
    ollama,
    responses,
    scoring,
    tokenization,
)
from extproc.prompt.content import Content
from extproc.prompt.model import Api
from extproc.prompt.parsing import Fields

Reader = Callable[[Fields, Content], Api | None]
"""Writes a request's content and names its API; None if the fields belong to no known API."""

_READERS: Final[dict[str, Reader]] = {
    "": generation.read_by_fields,
    "api/chat": ollama.read_chat,
    "api/embed": ollama.read_embed,
    "api/embeddings": ollama.read_embed,
    "api/generate": ollama.read_generate,
    "chat/completions": chat.read,
    "classify": embeddings.read,
    "completion": completions.read,
    "completions": completions.read,
    "detokenize": tokenization.read,
    "embed": embeddings.read,
    "embeddings": embeddings.read,
    "generate": generation.read_by_fields,
    "generate_stream": generation.read_by_fields,
    "inference/v1/generate": generation.read_vllm,
    "invocations": generation.read_by_fields,
    "messages/count_tokens": anthropic.read,
    "pooling": embeddings.read,
    "rerank": scoring.read_rerank,
    "responses": responses.read,
    "score": scoring.read_score,
    "tokenize": tokenization.read,
    "v1/messages": anthropic.read,
}
_LONGEST: Final = 3  # segments of the longest suffix


def find_reader(path: str) -> Reader | None:
    """The reader of a request path, by its longest known suffix.

    Args:
        path: With or without prefix, query string and trailing slash.
    """
    return _find(path.partition("?")[0].partition("#")[0])


@lru_cache(maxsize=256)
def _find(path: str) -> Reader | None:
    segments = [segment for segment in path.split("/") if segment]
    if not segments:
        return _READERS[""]
    suffixes = ("/".join(segments[-count:]) for count in range(_LONGEST, 0, -1))
    return next((_READERS[suffix] for suffix in suffixes if suffix in _READERS), None)


def is_ollama(path: str) -> bool:
    """Whether the path belongs to Ollama, which reads JSON whatever the content type."""
    reader = find_reader(path)
    return reader in (ollama.read_chat, ollama.read_generate, ollama.read_embed)
