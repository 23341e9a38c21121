"""Asks through Envoy, and compares what vLLM counted with what the router foretold."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp

from tests.vllm.chats import (
    Agent,
    Json,
    chat_body,
    completion_body,
    messages_body,
    responses_body,
)

FACTS = {
    "x-reason": "%DYNAMIC_METADATA(prefix_extproc:reason)%",
    "x-predicted": "%DYNAMIC_METADATA(prefix_extproc:matched_tokens)%",
    "x-served-by": "%UPSTREAM_REMOTE_ADDRESS%",
}
"""A listener's ``response_headers``, in which Envoy tells the router's decision."""

ANSWER_TOKENS = 4


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one request, as an engine counts them."""

    prompt: int
    cached: int


@dataclass(frozen=True, slots=True)
class Dialect:
    """One API: how a request looks, and where its answer tells the usage."""

    name: str
    path: str
    body: Callable[[Agent, list[Json]], Json]
    limit: str
    usage: Callable[[Json], Usage | None]


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of one request."""

    predicted: int
    reason: str
    served_by: str
    usage: Usage
    text: str


def _openai(event: Json) -> Usage | None:
    usage = event.get("usage")
    if not usage:
        return None
    return Usage(usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"])


def _anthropic(event: Json) -> Usage | None:
    usage = event.get("usage")  # of the message, or of its last delta
    if not usage:
        return None
    cached, created = usage["cache_read_input_tokens"], usage["cache_creation_input_tokens"]
    return Usage(usage["input_tokens"] + cached + created, cached)


def _responses(event: Json) -> Usage | None:
    usage = event.get("response", event).get("usage")
    if not usage:
        return None
    return Usage(usage["input_tokens"], usage["input_tokens_details"]["cached_tokens"])


CHAT = Dialect("chat", "/v1/chat/completions", chat_body, "max_tokens", _openai)
COMPLETIONS = Dialect("completions", "/v1/completions", completion_body, "max_tokens", _openai)
MESSAGES = Dialect("messages", "/v1/messages", messages_body, "max_tokens", _anthropic)
RESPONSES = Dialect("responses", "/v1/responses", responses_body, "max_output_tokens", _responses)


async def ask(
    http: aiohttp.ClientSession,
    base: str,
    dialect: Dialect,
    body: Mapping[str, Any],
    *,
    stream: bool = False,
    answer_tokens: int = ANSWER_TOKENS,
) -> Answer:
    """Send one request.

    Args:
        http: To send with.
        base: URL of a listener that tells ``FACTS``.
        dialect: The API.
        body: Its body.
        stream: Whether the answer comes as events.
        answer_tokens: How long the answer may be.
    """
    options: Json = {dialect.limit: answer_tokens, "stream": stream}
    if dialect in (CHAT, COMPLETIONS):
        options["ignore_eos"] = True
    if stream and dialect.usage is _openai:
        options["stream_options"] = {"include_usage": True}
    async with http.post(base + dialect.path, json={**body, **options}) as reply:
        content = (await reply.read()).decode()
        assert reply.status == 200, content
        facts = {name: reply.headers[name] for name in FACTS}
    events = list(_events(content)) if stream else [json.loads(content)]
    usage = next(found for event in reversed(events) if (found := dialect.usage(event)))
    return Answer(
        predicted=int(facts["x-predicted"]),
        reason=facts["x-reason"],
        served_by=facts["x-served-by"],
        usage=usage,
        text=_text(events[0]) if dialect is CHAT and not stream else "",
    )


def _events(content: str) -> Iterator[Json]:
    for line in content.splitlines():
        if line.startswith("data: {"):
            yield json.loads(line.removeprefix("data: "))


def _text(completion: Json) -> str:
    text: str | None = completion["choices"][0]["message"]["content"]
    return text or ""
