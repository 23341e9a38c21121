"""The engines' own generate APIs, and paths that several engines share."""

from typing import Any

from extproc.prompt import chat, completions, embeddings, scoring
from extproc.prompt.completions import write_embeddings, write_sequences
from extproc.prompt.content import OTHER, Content
from extproc.prompt.model import Api
from extproc.prompt.parsing import Fields


def read_by_fields(fields: Fields, out: Content) -> Api | None:
    """Write a request to a shared path (``/``, ``/generate``, ``/invocations``).

    Its fields tell the API; None where they tell nothing.
    """
    for name, reader in _BY_FIELD:
        if name in fields.values:
            return reader(fields, out)
    return None


def read_vllm(fields: Fields, out: Content) -> Api | None:
    """Write a request of vLLM's tokens-in API.

    Its placeholder tokens are the same for all images, so the images' hashes come first.
    """
    features = fields.whole("features")
    hashes = features.get("mm_hashes") if isinstance(features, dict) else None
    if hashes:
        out.medium(hashes)
    if parts := fields.whole("content_parts"):
        out.json(OTHER, parts)
    write_sequences(out, fields.get("token_ids"), cut=fields.is_cut("token_ids"))
    return Api.VLLM


def read_sglang(fields: Fields, out: Content) -> Api | None:
    """Write a request of SGLang's native API: media, then a text, token ids or embeddings.

    The text holds a placeholder for each medium; the media come first, so that a placeholder is
    never taken for another medium's.
    """
    for name in ("image_data", "audio_data", "video_data"):
        _write_media(out, fields.whole(name))
    write_embeddings(out, fields.whole("input_embeds"))
    for name in ("text", "input_ids"):
        write_sequences(out, fields.get(name), cut=fields.is_cut(name))
    return Api.SGLANG


def _write_media(out: Content, value: Any) -> None:
    if isinstance(value, list):
        for item in value:
            _write_media(out, item)
    elif value is not None:
        out.medium(value)


def read_tgi(fields: Fields, out: Content) -> Api | None:
    """Write a request of TGI's native API."""
    write_sequences(out, fields.get("inputs"), cut=fields.is_cut("inputs"))
    return Api.TGI


_BY_FIELD = (
    ("messages", chat.read),
    ("token_ids", read_vllm),
    ("inputs", read_tgi),
    ("prompt", completions.read),
    ("prompt_embeds", completions.read),
    ("input", embeddings.read),
    ("query", scoring.read_rerank),
    ("queries", scoring.read_score),
    ("text_1", scoring.read_score),
    ("data_1", scoring.read_score),
    ("text", read_sglang),
    ("input_ids", read_sglang),
    ("input_embeds", read_sglang),
)
