"""What the rest of the server knows of a prompt."""

from dataclasses import dataclass
from enum import StrEnum


class Api(StrEnum):
    """The API family by whose rules a request body was read."""

    CHAT = "chat"
    COMPLETIONS = "completions"
    RESPONSES = "responses"
    MESSAGES = "messages"
    EMBEDDINGS = "embeddings"
    RERANK = "rerank"
    SCORE = "score"
    TOKENIZE = "tokenize"
    SGLANG = "sglang"
    VLLM = "vllm"
    TGI = "tgi"
    OLLAMA = "ollama"
    RAW = "raw"


class Unreadable(StrEnum):
    """Why a request has no prompt, or only raw bytes for one. A label of the metrics, so few."""

    NO_BODY = "no_body"
    CONTENT_TYPE = "content_type"
    COMPRESSED = "compressed"
    NOT_UTF8 = "not_utf8"
    SURROGATE = "surrogate"
    TOO_DEEP = "too_deep"
    BROKEN_JSON = "broken_json"
    NO_PROMPT_FIELD = "no_prompt_field"


class ToolsPlace(StrEnum):
    """Where a model's chat template puts the definitions of tools."""

    FIRST = "first"
    AFTER_SYSTEM = "after_system"


@dataclass(frozen=True, slots=True)
class Prompt:
    """The content of one request, in the order in which the engine will see it.

    Attributes:
        api: The family by whose rules the body was read.
        content: The prompt bytes.
        salt: What separates equal contents beside the pool and the tenant: model, ``cache_salt``
            and whether the body was cut; unambiguous, and empty for none of them.
        media: Offsets in ``content`` just behind each image, audio or video, ascending.
        text: The first characters of the messages' text as UTF-8 (raw bytes where there is no
            text), at most as many characters as the reader was asked for. The key of the
            ``prefix_aware`` strategy.
        cache_key: The body's ``prompt_cache_key``, or empty.
        model: The body's model name, or empty.
        cut: Whether the body went on behind what was read.
        problem: What kept a part of the body from being read, or None.
        size: Bytes of the body, as it came, that were read; 0 where nobody counted.
        session: What the field that was asked for says of the request's session, or empty.
    """

    api: Api
    content: bytes
    salt: bytes = b""
    media: tuple[int, ...] = ()
    text: bytes = b""
    cache_key: str = ""
    model: str = ""
    cut: bool = False
    problem: Unreadable | None = None
    size: int = 0
    session: str = ""


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """A prompt as the store sees it: checkpoints, never text.

    Attributes:
        positions: Checkpoint offsets in bytes, ascending.
        hashes: 16 bytes each, over the seed and all content up to the position; same length.
        tokens: Estimated tokens up to each position; same length.
        total_tokens: Estimated tokens of the whole prompt, at least the last of ``tokens``.
        tie: 16 bytes over the seed and the first ``min(256, n)`` bytes.
        sticky: 16 bytes, the key of the ``prefix_aware`` strategy.
    """

    positions: tuple[int, ...]
    hashes: tuple[bytes, ...]
    tokens: tuple[int, ...]
    total_tokens: int
    tie: bytes
    sticky: bytes
