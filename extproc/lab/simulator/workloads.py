"""Built-in workloads: seeded, so the same seed gives the same requests at the same times."""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from heapq import merge
from itertools import accumulate, pairwise

from extproc.lab.replica.cache import BLOCK_TOKENS
from extproc.lab.simulator.calls import Blocks, Call, Change, Workload

Builder = Callable[[random.Random, int, float, int], Workload]
"""From a generator, the number of replicas, a factor on the rate and the number of requests (0 for
the default)."""

CHAT_RATE = 28.0
"""Turns of ``chat`` per second and replica: more than 8 H100 take without cached prompts."""


def _arrivals(draw: random.Random, rate: float, count: int) -> Iterator[float]:
    at_s = 0.0
    for _ in range(count):
        yield at_s
        at_s += draw.expovariate(rate)


def _tokens(draw: random.Random, mean: float, sigma: float = 0.8) -> int:
    """A log-normal length with this mean, at least 4 and at most 16 means."""
    length = mean * draw.lognormvariate(-sigma * sigma / 2, sigma)
    return round(min(max(length, 4), 16 * mean))


def _turns(chain: Sequence[int], head_tokens: int, turns: Sequence[tuple[int, int]]) -> list[Call]:
    """The turns of a conversation; each repeats all before it, answers too."""
    calls = []
    tokens = head_tokens
    for said, answered in turns:
        tokens += said
        end = (tokens + answered) // BLOCK_TOKENS
        calls.append(Call(0.0, chain[:end], tokens, answered))
        tokens += answered
    return calls


def _conversations(
    name: str,
    draw: random.Random,
    *,
    rate: float,
    requests: int,
    heads: int,
    head_tokens: int,
    turns: int,
    said: int,
    answered: int,
    think_s: float,
) -> Workload:
    blocks = Blocks()
    prefixes = [blocks.fresh(head_tokens // BLOCK_TOKENS) for _ in range(heads)]
    count = max(1, requests // turns)

    def calls() -> Iterator[Call]:
        for at_s in _arrivals(draw, rate / turns, count):
            shape = [(_tokens(draw, said), _tokens(draw, answered)) for _ in range(turns)]
            total = head_tokens + sum(map(sum, shape))
            chain = blocks.extend(draw.choice(prefixes), head_tokens, total)
            conversation = _turns(chain, head_tokens, shape)
            for call, following in pairwise(conversation):
                call.then = draw.expovariate(1 / think_s), following
            conversation[0].at_s = at_s
            yield conversation[0]

    return Workload(name, calls(), count * turns)


def chat(draw: random.Random, replicas: int, scale: float, requests: int) -> Workload:
    """Chats of six turns under a few system prompts."""
    return _conversations(
        "chats of 6 turns, 8 system prompts of 1,000 tokens",
        draw,
        rate=CHAT_RATE * replicas * scale,
        requests=requests or 1500 * replicas,
        heads=8,
        head_tokens=1000,
        turns=6,
        said=250,
        answered=200,
        think_s=8.0,
    )


def agent(draw: random.Random, replicas: int, scale: float, requests: int) -> Workload:
    """Agents: long instructions and tools in common, many steps with results of tools."""
    return _conversations(
        "agents of 12 steps, 8 kinds with 6,000 tokens of tools, results of 1,000 tokens",
        draw,
        rate=12.0 * replicas * scale,
        requests=requests or 900 * replicas,
        heads=8,
        head_tokens=6000,
        turns=12,
        said=1000,
        answered=120,
        think_s=3.0,
    )


def shared_prefixes(draw: random.Random, replicas: int, scale: float, requests: int) -> Workload:
    """Eight thousand tokens in common with many others, and a short question."""
    return _prefixed(
        f"{100 * replicas} shared prefixes of 8,000 tokens, equally often, own tails of 200",
        draw,
        rate=3.0 * replicas * scale,
        requests=requests or 700 * replicas,
        weights=[1.0] * (100 * replicas),
        prefix_tokens=8000,
        tail_tokens=200,
        output_tokens=100,
    )


def hot_prefix(draw: random.Random, replicas: int, scale: float, requests: int) -> Workload:
    """Prefixes of which one is in most prompts: more than one replica can serve."""
    return _prefixed(
        "100 prefixes of 4,000 tokens, the hottest in half the requests, own tails of 400",
        draw,
        rate=20.0 * replicas * scale,
        requests=requests or 1000 * replicas,
        weights=[1 / (rank + 1) ** 1.6 for rank in range(100)],
        prefix_tokens=4000,
        tail_tokens=400,
        output_tokens=150,
    )


def _prefixed(
    name: str,
    draw: random.Random,
    *,
    rate: float,
    requests: int,
    weights: Sequence[float],
    prefix_tokens: int,
    tail_tokens: int,
    output_tokens: int,
) -> Workload:
    blocks = Blocks()
    prefixes = [blocks.fresh(prefix_tokens // BLOCK_TOKENS) for _ in weights]
    cumulative = list(accumulate(weights))

    def calls() -> Iterator[Call]:
        for at_s in _arrivals(draw, rate, requests):
            prefix = draw.choices(prefixes, cum_weights=cumulative)[0]
            tokens = prefix_tokens + _tokens(draw, tail_tokens)
            chain = blocks.extend(prefix, prefix_tokens, tokens)
            yield Call(at_s, chain, tokens, _tokens(draw, output_tokens))

    return Workload(name, calls(), requests)


def no_sharing(draw: random.Random, replicas: int, scale: float, requests: int) -> Workload:
    """Prompts that have nothing in common: only load can be balanced."""
    requests = requests or 700 * replicas
    blocks = Blocks()

    def calls() -> Iterator[Call]:
        for at_s in _arrivals(draw, 8.0 * replicas * scale, requests):
            tokens = _tokens(draw, 2000, 1.2)
            yield Call(at_s, blocks.fresh(tokens // BLOCK_TOKENS), tokens, _tokens(draw, 150))

    return Workload("nothing shared, 2,000 tokens in the mean", calls(), requests)


def burst(draw: random.Random, replicas: int, scale: float, requests: int) -> Workload:
    """Every ten seconds 200 equal cold prompts at once, over other traffic."""
    bursts = max(1, (requests or 4000) // 400)
    blocks = Blocks()
    every_s = 10.0 / scale
    rate = min(200 / every_s, 3.0 * replicas * scale)

    def bursting() -> Iterator[Call]:
        for number in range(bursts):
            chain = blocks.fresh(8000 // BLOCK_TOKENS)
            for _ in range(200):
                yield Call((number + 0.5) * every_s, chain, 8000, _tokens(draw, 100))

    def others() -> Iterator[Call]:
        for at_s in _arrivals(draw, rate, 200 * bursts):
            tokens = _tokens(draw, 1500)
            yield Call(at_s, blocks.fresh(tokens // BLOCK_TOKENS), tokens, _tokens(draw, 150))

    return Workload(
        "bursts of 200 equal cold prompts of 8,000 tokens, over other traffic",
        merge(bursting(), others(), key=lambda call: call.at_s),
        400 * bursts,
    )


def scaling(draw: random.Random, replicas: int, scale: float, requests: int) -> Workload:
    """Chats while the pool grows from half its replicas to all, and shrinks again."""
    half = max(1, replicas // 2)
    requests = requests or 1500 * replicas
    chats = chat(draw, half, scale, requests)
    lasts_s = requests / (CHAT_RATE * half * scale)
    others = range(half, replicas)
    return replace(
        chats,
        name=f"{chats.name}; {half} replicas, then {replicas}, then {half}",
        changes=[
            *(Change(lasts_s / 3, number, present=True) for number in others),
            *(Change(lasts_s * 2 / 3, number, present=False) for number in others),
        ],
        absent=frozenset(others),
    )


WORKLOADS: dict[str, Builder] = {
    "chat": chat,
    "agent": agent,
    "shared-prefixes": shared_prefixes,
    "hot-prefix": hot_prefix,
    "no-sharing": no_sharing,
    "burst": burst,
    "scaling": scaling,
}
"""Built-in workloads by name."""
