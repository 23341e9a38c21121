"""What one request was predicted, what the engine found, and why the two differ."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from extproc.lab.vllm import BLOCK_TOKENS
from tests.vllm.client import Answer


@dataclass(frozen=True, slots=True)
class Row:
    """One request.

    Attributes:
        conversation: Which it belongs to.
        turn: 0 for its first.
        answer: What came of it.
        shared_bytes: Most prompt bytes, as the router has them, that it shares with an earlier
            request of the pool that the same replica served.
        shared_tokens: Most prompt tokens, as the engine has them, that it shares with an earlier
            request that the same replica served.
        bytes_per_token: The pool's setting.
    """

    conversation: str
    turn: int
    answer: Answer
    shared_bytes: int
    shared_tokens: int
    bytes_per_token: float

    @property
    def difference(self) -> int:
        """Tokens that were cached beyond those predicted."""
        return self.answer.usage.cached - self.answer.predicted

    @property
    def explained(self) -> float:
        """Tokens of the difference that no checkpoint and no block can help.

        The text that is shared does not have the pool's bytes to a token, or the template renders
        it in another order, or not at all.
        """
        return self.shared_tokens - self.shared_bytes / self.bytes_per_token

    @property
    def within(self) -> float:
        """Tokens of one checkpoint step at this depth and one cache block."""
        return step(self.shared_bytes) / self.bytes_per_token + BLOCK_TOKENS

    @property
    def agrees(self) -> bool:
        """Whether prediction and count differ by no more than they must."""
        return abs(self.difference) <= self.within

    @property
    def is_explained(self) -> bool:
        """Whether they do once what is explained is taken off."""
        return abs(self.difference - self.explained) <= self.within


def step(position: int) -> int:
    """Bytes from one checkpoint to the next at a position."""
    return max(256, 2 ** int(math.log2(position / 8))) if position >= 8 else 256


def longest_shared(one: Sequence[int], others: Iterable[Sequence[int]]) -> int:
    """Length of the longest prefix that a sequence shares with another one."""
    return max((shared(one, other) for other in others), default=0)


def shared(one: Sequence[int], other: Sequence[int]) -> int:
    """Length of the common prefix, found by halving: comparing slices is fast."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def table(rows: Iterable[Row]) -> Iterable[str]:
    """The rows as lines."""
    yield (
        f"{'conversation':<40}{'turn':>5}{'prompt':>8}{'predicted':>11}{'cached':>8}"
        f"{'difference':>12}{'explained':>11}{'step+block':>12}"
    )
    for row in rows:
        usage = row.answer.usage
        yield (
            f"{row.conversation:<40}{row.turn:>5}{usage.prompt:>8}{row.answer.predicted:>11}"
            f"{usage.cached:>8}{row.difference:>12}{row.explained:>11.0f}{row.within:>12.0f}"
        )
