"""Seeded workloads: the same seed gives the same requests at the same times, always."""

import itertools
import json
import random
import string
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

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
    """

    at_s: float
    system: str
    turns: Sequence[str]
    output_tokens: int
    think_s: float = 0.0


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
        messages: list[Message] = [{"role": "system", "content": conversation.system}]
        for number in range(turn):
            messages.append({"role": "user", "content": conversation.turns[number]})
            messages.append({"role": "assistant", "content": answers[number]})
        messages.append({"role": "user", "content": conversation.turns[turn]})
        fields: dict[str, Any] = {
            "model": self.model,
            "messages": messages,
            "max_tokens": conversation.output_tokens,
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


def infinite_cache_hit_rate(workload: Workload) -> float:
    """Share of prompt tokens that one replica with an endless cache would find in it.

    The bound for every way of routing, by the simulated replica's own rules: whole blocks, and a
    prompt's last token is always computed. Turns count in the order of their earliest start.
    """
    seen: set[int] = set()
    queries = hits = 0
    for body in _bodies(workload):
        generation = read_generation(body, chat=True)
        prompt = generation.prompts[0]
        answer = output_bytes(generation.output_tokens)
        hashes = chain_hashes(prompt + answer, generation.salt)
        tokens = prompt_tokens(prompt)
        queries += tokens
        for value in hashes[: (tokens - 1) // BLOCK_TOKENS]:
            if value not in seen:
                break
            hits += BLOCK_TOKENS
        seen.update(hashes)
    return hits / queries if queries else 0.0


def _bodies(workload: Workload) -> Iterator[bytes]:
    starts = sorted(
        (conversation.at_s + turn * conversation.think_s, number, turn)
        for number, conversation in enumerate(workload.conversations)
        for turn in range(len(conversation.turns))
    )
    for _, number, turn in starts:
        conversation = workload.conversations[number]
        answer = output_bytes(conversation.output_tokens).decode()
        yield workload.body(conversation, turn, [answer] * turn)


def _arrivals(draw: random.Random, rate: float) -> Iterator[float]:
    at_s = 0.0
    while True:
        yield at_s
        at_s += draw.expovariate(rate)


def _text(draw: random.Random, tokens: int) -> str:
    """Text of so many simulated tokens: words of three letters and a space."""
    return "".join(draw.choices(_WORDS, k=tokens))
