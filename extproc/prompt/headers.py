"""What a request's headers alone tell of its prompt."""

from functools import lru_cache
from typing import Final

from extproc.prompt.apis import find_reader, is_ollama
from extproc.prompt.compression import coding_of, unpacks
from extproc.prompt.model import Unreadable

_METHODS: Final = frozenset({"POST", "PUT", "PATCH"})


def unreadable(
    method: str, path: str, content_type: str, content_encoding: str, upgrade: str
) -> Unreadable | None:
    """Why a request will have no readable prompt, by its headers; None if it may have one.

    Args:
        method: ``:method``.
        path: ``:path``, with its query string.
        content_type: The header, or empty.
        content_encoding: The header, or empty.
        upgrade: The header, or empty.
    """
    # HTTP clients of Java ask for h2c with every request; that is no WebSocket.
    if method.upper() not in _METHODS or upgrade.strip().lower() not in ("", "h2c"):
        return Unreadable.NO_BODY
    return unreadable_body(path, content_type, content_encoding)


def unreadable_body(path: str, content_type: str, content_encoding: str) -> Unreadable | None:
    """Why a body cannot be read as JSON, by the headers that describe it; None if it can."""
    if (coding := coding_of(content_encoding)) and not unpacks(coding):
        return Unreadable.COMPRESSED
    kind = _kind(content_type)
    if kind == "json":
        return None
    if kind == "none" and find_reader(path) is not None:
        return None
    # "curl -d" says application/x-www-form-urlencoded, and Ollama's own examples use it.
    if kind == "form" and is_ollama(path):
        return None
    return Unreadable.CONTENT_TYPE


@lru_cache(maxsize=64)
def _kind(content_type: str) -> str:
    mime = content_type.partition(";")[0].partition(",")[0].strip().lower()
    if not mime:
        return "none"
    if mime in ("application/json", "text/json"):
        return "json"
    if mime.endswith("+json") and not mime.startswith("application/grpc"):
        return "json"
    return "form" if mime == "application/x-www-form-urlencoded" else "other"
