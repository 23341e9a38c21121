"""Seeded workloads: the same seed gives the same requests at the same times, always."""

import itertools
import json
import math
import random
import string
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from extproc.lab.replica.cache import BLOCK_TOKENS, BYTES_PER_TOKEN, chain_hashes
from extproc.lab.replica.openai import output_bytes, prompt_tokens, read_generation

Message = dict[str, str]

_WORDS = tuple(
    "".join(letters) + " "
    for letters in itertools.product(string.ascii_lowercase, repeat=BYTES_PER_TOKEN - 1)
)


@dataclass(frozen=True, slots=True)
class Conversation:
    """A chat of one turn or more; each turn repeats all that was said before.

    Attributes:
        at_s: When its first turn is sent, in seconds from the start.
        system: The system message.
        turns: The user's messages, in order.
        output_tokens: Tokens of each answer.
        think_s: Pause between an answer's end and the next turn.
        answers: Tokens of each answer where they differ; empty: all as ``output_tokens``.
    """

    at_s: float
    system: str
    turns: Sequence[str]
    output_tokens: int
    think_s: float = 0.0
    answers: Sequence[int] = ()

    def answer_tokens(self, turn: int) -> int:
        """Tokens of the answer to one turn, 0 for the first."""
        return self.answers[turn] if self.answers else self.output_tokens


@dataclass(frozen=True, slots=True)
class Workload:
    """What to send.

    Attributes:
        name: One line for reports.
        model: The model's name in each request.
        conversations: In order of their start.
        concurrency: Conversations that go on at once, the others wait; 0: no limit.
    """

    name: str
    model: str
    conversations: Sequence[Conversation]
    concurrency: int = 0

    @property
    def requests(self) -> int:
        """How many requests it has, over all turns."""
        return sum(len(conversation.turns) for conversation in self.conversations)

    def body(self, conversation: Conversation, turn: int, answers: Sequence[str]) -> bytes:
        """The JSON body of one turn.

        Args:
            conversation: Whose turn.
            turn: 0 for the first.
            answers: What was answered to the turns before.
        """
        messages: list[Message] = []
        if conversation.system:
            messages.append({"role": "system", "content": conversation.system})
        for number in range(turn):
            messages.append({"role": "user", "content": conversation.turns[number]})
            messages.append({"role": "assistant", "content": answers[number]})
        messages.append({"role": "user", "content": conversation.turns[turn]})
        fields: dict[str, Any] = {
            "model": self.model,
            "messages": messages,
            "max_tokens": conversation.answer_tokens(turn),
            "temperature": 0,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        return json.dumps(fields).encode()


def shared_prefixes(
    *,
    seed: int,
    groups: int,
    requests: int,
    rate: float,
    prefix_tokens: int = 8000,
    tail_tokens: int = 100,
    output_tokens: int = 32,
    model: str = "llama-3.1-70b",
) -> Workload:
    """Requests that each begin with one of a few long prefixes and end with text of their own.

    Prefixes are drawn uniformly, arrivals are a Poisson process.

    Args:
        seed: Of everything drawn.
        groups: Number of prefixes; each comes at least once if there are enough requests.
        requests: Number of requests.
        rate: Requests per second.
        prefix_tokens: Length of a prefix.
        tail_tokens: Length of what is a request's own.
        output_tokens: Length of an answer.
        model: Name of the model.
    """
    draw = random.Random(seed)
    prefixes = [_text(draw, prefix_tokens) for _ in range(groups)]
    order = [index % groups for index in range(min(groups, requests))]
    order += [draw.randrange(groups) for _ in range(requests - len(order))]
    draw.shuffle(order)
    conversations = [
        Conversation(at_s, prefixes[group], [_text(draw, tail_tokens)], output_tokens)
        for group, at_s in zip(order, _arrivals(draw, rate), strict=False)
    ]
    name = (
        f"{requests} requests at {rate:g}/s, {groups} shared prefixes of {prefix_tokens:,} tokens, "
        f"own tails of {tail_tokens}, answers of {output_tokens}"
    )
    return Workload(name, model, conversations)


def chats(
    *,
    seed: int,
    conversations: int,
    turns: int,
    rate: float,
    system_tokens: int = 500,
    turn_tokens: int = 100,
    output_tokens: int = 64,
    think_s: float = 1.0,
    model: str = "llama-3.1-70b",
) -> Workload:
    """Conversations of several turns, all with the same system message.

    Args:
        seed: Of everything drawn.
        conversations: Number of conversations.
        turns: Turns of each.
        rate: Conversations that begin per second, a Poisson process.
        system_tokens: Length of the system message.
        turn_tokens: Length of a user's message.
        output_tokens: Length of an answer.
        think_s: Pause between an answer's end and the next turn.
        model: Name of the model.
    """
    draw = random.Random(seed)
    system = _text(draw, system_tokens)
    started = zip(range(conversations), _arrivals(draw, rate), strict=False)
    return Workload(
        f"{conversations} chats of {turns} turns, {rate:g}/s begin, "
        f"{turn_tokens} tokens a turn, answers of {output_tokens}",
        model,
        [
            Conversation(
                at_s,
                system,
                [_text(draw, turn_tokens) for _ in range(turns)],
                output_tokens,
                think_s,
            )
            for _, at_s in started
        ],
    )


def sharegpt_like(
    *,
    seed: int,
    requests: int,
    rate: float,
    think_s: float = 2.0,
    model: str = "llama-3.1-70b",
) -> Workload:
    """Conversations in the manner of ShareGPT, with text of their own.

    27 % have one turn (CachedAttention, USENIX ATC 2024: 73 % have several). The other lengths are
    ours, chosen after what papers report of that set and not checked against it: a geometric
    number of turns, 5.75 in the mean over all and at most 20; a turn says 161 tokens and is
    answered with 338 in the mean, log-normal with a sigma of 0.8 and at most 2,048. Nothing is
    shared between conversations.

    Args:
        seed: Of everything drawn.
        requests: Turns of all conversations.
        rate: Turns per second in the mean, if answers took no time: conversations begin so often,
            a Poisson process.
        think_s: Mean pause between an answer's end and the next turn, exponential over
            conversations.
        model: Name of the model.
    """
    draw = random.Random(seed)
    conversations: list[Conversation] = []
    left = requests
    for at_s in _arrivals(draw, rate / _CHAT_TURNS):
        turns = min(left, _chat_turns(draw))
        left -= turns
        texts = [_text(draw, _length(draw, 161)) for _ in range(turns)]
        answers = [_length(draw, 338) for _ in range(turns)]
        pause_s = draw.expovariate(1 / think_s)
        conversations.append(Conversation(at_s, "", texts, 338, pause_s, answers))
        if not left:
            break
    name = (
        f"{requests} turns of {len(conversations)} ShareGPT-like conversations, {rate:g} turns/s, "
        "161 tokens said and 338 answered in the mean"
    )
    return Workload(name, model, conversations)


_CHAT_TURNS = 5.75


def _chat_turns(draw: random.Random) -> int:
    if draw.random() < 0.27:
        return 1
    more = (_CHAT_TURNS - 0.27) / 0.73 - 2  # in the mean, beyond two
    return min(20, 2 + int(math.log(1 - draw.random()) / math.log(more / (1 + more))))


def _length(draw: random.Random, mean: float) -> int:
    return round(min(max(mean * draw.lognormvariate(-0.32, 0.8), 4), 2048))


def at_speed(workload: Workload, speed: float) -> Workload:
    """The same requests, all times between them divided by ``speed``."""
    return replace(
        workload,
        conversations=[
            replace(chat, at_s=chat.at_s / speed, think_s=chat.think_s / speed)
            for chat in workload.conversations
        ],
    )


class Lookup(NamedTuple):
    """What an endless cache holds of one prompt.

    Attributes:
        tokens: Of the prompt.
        cached: Of these, tokens in the cache.
    """

    tokens: int
    cached: int


def infinite_cache_hit_rate(workload: Workload) -> float:
    """Share of prompt tokens that one replica with an endless cache would find in it."""
    lookups = infinite_cache(workload)
    queries = sum(lookup.tokens for lookup in lookups)
    return sum(lookup.cached for lookup in lookups) / queries if queries else 0.0


def infinite_cache(workload: Workload) -> list[Lookup]:
    """What one replica with an endless cache would find in it, request by request.

    The bound for every way of routing, by the simulated replica's own rules: whole blocks, and a
    prompt's last token is always computed. Turns count in the order of their earliest start.
    """
    seen: set[int] = set()
    lookups = []
    for body in _bodies(workload):
        generation = read_generation(body, chat=True)
        prompt = generation.prompts[0]
        answer = output_bytes(generation.output_tokens)
        hashes = chain_hashes(prompt + answer, generation.salt)
        tokens = prompt_tokens(prompt)
        hits = 0
        for value in hashes[: (tokens - 1) // BLOCK_TOKENS]:
            if value not in seen:
                break
            hits += BLOCK_TOKENS
        lookups.append(Lookup(tokens, hits))
        seen.update(hashes)
    return lookups


def _bodies(workload: Workload) -> Iterator[bytes]:
    starts = sorted(
        (conversation.at_s + turn * conversation.think_s, number, turn)
        for number, conversation in enumerate(workload.conversations)
        for turn in range(len(conversation.turns))
    )
    for _, number, turn in starts:
        conversation = workload.conversations[number]
        answers = [output_bytes(conversation.answer_tokens(n)).decode() for n in range(turn)]
        yield workload.body(conversation, turn, answers)


def _arrivals(draw: random.Random, rate: float) -> Iterator[float]:
    at_s = 0.0
    while True:
        yield at_s
        at_s += draw.expovariate(rate)


def _text(draw: random.Random, tokens: int) -> str:
    """Text of so many simulated tokens: words of three letters and a space."""
    return "".join(draw.choices(_WORDS, k=tokens))
