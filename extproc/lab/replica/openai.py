"""The OpenAI completions and chat API, as far as a simulated replica needs it: pure functions."""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jiter

from extproc.lab.replica.cache import BYTES_PER_TOKEN

DEFAULT_OUTPUT_TOKENS = 16
"""As in vLLM where a request names no limit (there: of the completions API)."""

WORDS = (" the", " sea", " was", " red", " and", " ice", " far", " off")
"""The model's vocabulary: four bytes a token."""


class BadRequestError(Exception):
    """A request that the API refuses with status 400; the message is for the client."""


@dataclass(frozen=True, slots=True)
class Generation:
    """What a request asks for.

    Attributes:
        chat: Whether it came through the chat API.
        model: As the client named it.
        prompts: The text of each sequence, four bytes a token.
        output_tokens: Tokens to generate per sequence.
        stream: Whether to answer with server-sent events.
        include_usage: Whether the stream ends with a usage chunk.
        salt: What separates equal prompts in the cache.
    """

    chat: bool
    model: str
    prompts: Sequence[bytes]
    output_tokens: int
    stream: bool
    include_usage: bool
    salt: bytes


def read_generation(body: bytes, *, chat: bool) -> Generation:
    """Read a request body.

    Raises:
        BadRequestError: If it is no JSON object, or has no usable prompt or limit.
    """
    try:
        fields = jiter.from_json(body)
    except ValueError as error:
        raise BadRequestError(f"the body is no JSON: {error}") from error
    if not isinstance(fields, dict):
        raise BadRequestError("the body is no JSON object")
    prompts = [_chat_prompt(fields)] if chat else _completion_prompts(fields)
    options = fields.get("stream_options")
    model = str(fields.get("model") or "")
    return Generation(
        chat=chat,
        model=model,
        prompts=prompts,
        output_tokens=_output_tokens(fields),
        stream=fields.get("stream") is True,
        include_usage=isinstance(options, dict) and options.get("include_usage") is True,
        salt=f"{model}\0{fields.get('cache_salt') or ''}".encode(errors="replace"),
    )


def output_text(index: int) -> str:
    """The text of the token ``index`` of any output: the model always says the same."""
    return WORDS[index % len(WORDS)]


def output_bytes(tokens: int) -> bytes:
    """The text of an output of so many tokens, as the next turn of a chat repeats it."""
    return "".join(output_text(index) for index in range(tokens)).encode()


def usage(prompt_tokens: int, cached_tokens: int, output_tokens: int) -> dict[str, Any]:
    """The ``usage`` object of a response."""
    return {
        "prompt_tokens": prompt_tokens,
        "total_tokens": prompt_tokens + output_tokens,
        "completion_tokens": output_tokens,
        "prompt_tokens_details": {"cached_tokens": cached_tokens},
    }


def whole_choice(generation: Generation, index: int) -> dict[str, Any]:
    """One entry of ``choices`` of a response that is not streamed."""
    text = output_bytes(generation.output_tokens).decode()
    choice: dict[str, Any] = {"index": index, "finish_reason": "length", "logprobs": None}
    if generation.chat:
        choice["message"] = {"role": "assistant", "content": text}
    else:
        choice["text"] = text
    return choice


def stream_choice(
    generation: Generation, index: int, token: int, *, finished: bool
) -> dict[str, Any]:
    """One entry of ``choices`` of a streamed response: the token number ``token``."""
    choice: dict[str, Any] = {
        "index": index,
        "finish_reason": "length" if finished else None,
        "logprobs": None,
    }
    if generation.chat:
        choice["delta"] = {"content": output_text(token)}
        if token == 0:
            choice["delta"]["role"] = "assistant"
    else:
        choice["text"] = output_text(token)
    return choice


def object_name(generation: Generation, *, chunk: bool) -> str:
    """The ``object`` field of a response or a streamed chunk."""
    if not generation.chat:
        return "text_completion"
    return "chat.completion.chunk" if chunk else "chat.completion"


def _output_tokens(fields: Mapping[str, Any]) -> int:
    for name in ("max_completion_tokens", "max_tokens"):
        value = fields.get(name)
        if value is None:
            continue
        if not isinstance(value, int) or value < 1:
            raise BadRequestError(f"{name} must be a whole number of at least 1")
        return value
    return DEFAULT_OUTPUT_TOKENS


def _chat_prompt(fields: Mapping[str, Any]) -> bytes:
    """The chat template: the next turn's prompt begins with this one's prompt and answer."""
    messages = fields.get("messages")
    if not isinstance(messages, list) or not messages:
        raise BadRequestError("messages must be a list with at least one message")
    parts = []
    if fields.get("tools"):
        parts.append(f"<tools>{fields['tools']!r}\n")
    for message in messages:
        if not isinstance(message, dict):
            raise BadRequestError("each message must be an object")
        parts.append(f"<{message.get('role', 'user')}>{_content(message)}\n")
    parts.append("<assistant>")
    return "".join(parts).encode(errors="replace")


def _content(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    parts = [content] if isinstance(content, str) else []
    if isinstance(content, list):
        parts = [
            part["text"]
            if isinstance(part, dict) and isinstance(part.get("text"), str)
            else repr(part)
            for part in content
        ]
    if message.get("tool_calls"):
        parts.append(repr(message["tool_calls"]))
    return "".join(parts)


def _completion_prompts(fields: Mapping[str, Any]) -> list[bytes]:
    prompt = fields.get("prompt")
    if isinstance(prompt, str):
        return [prompt.encode(errors="replace")]
    if isinstance(prompt, list) and prompt:
        if all(isinstance(item, int) for item in prompt):
            return [_token_bytes(prompt)]
        if all(isinstance(item, str) for item in prompt):
            return [item.encode(errors="replace") for item in prompt]
        if all(isinstance(item, list) and item for item in prompt):
            return [_token_bytes(item) for item in prompt]
    raise BadRequestError("prompt must be a string, token ids, or a list of these")


def _token_bytes(tokens: Sequence[Any]) -> bytes:
    try:
        return struct.pack(f"<{len(tokens)}I", *tokens)
    except struct.error as error:
        raise BadRequestError("token ids must be whole numbers from 0 to 4294967295") from error


def prompt_tokens(prompt: bytes) -> int:
    """How many tokens a prompt counts: every begun four bytes one, at least one."""
    return max(1, -(-len(prompt) // BYTES_PER_TOKEN))
