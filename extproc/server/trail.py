"""The last decisions of this router, for people to look at: never text."""

from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from time import monotonic
from typing import NamedTuple

from extproc.prompt.model import Fingerprint
from extproc.routing import Decision, Reason

LENGTH = 4096
"""Decisions that are kept, over all pools."""


class Step(NamedTuple):
    """One decision.

    Attributes:
        at_s: When, by the monotonic clock.
        pool: The pool's name.
        reason: Why it came out so.
        replica: The first choice; empty where there was none.
        total_tokens: Tokens of the prompt.
        matched_tokens: Those of them that the first choice held.
        prefix: The hash of the prompt up to ``matched_tokens``; empty where nothing was held.
    """

    at_s: float
    pool: str
    reason: Reason
    replica: str
    total_tokens: int
    matched_tokens: int
    prefix: bytes


class Prefix(NamedTuple):
    """A start that prompts had in common and that was found in a cache.

    Attributes:
        hash: Its name.
        tokens: Its length.
        requests: How often it was found.
        replicas: Where.
    """

    hash: bytes
    tokens: int
    requests: int
    replicas: tuple[str, ...]


class Trail:
    """The last ``LENGTH`` decisions, the newest last."""

    def __init__(self) -> None:
        self._steps: deque[Step] = deque(maxlen=LENGTH)

    def add(self, pool: str, decision: Decision, found: Fingerprint | None) -> None:
        """Note a decision on a prompt with a fingerprint."""
        matched = decision.matched_tokens
        self._steps.append(
            Step(
                monotonic(),
                pool,
                decision.reason,
                decision.ranked[0] if decision.ranked else "",
                decision.total_tokens,
                matched,
                _prefix(found, matched) if found is not None and matched else b"",
            )
        )

    def __iter__(self) -> Iterator[Step]:
        """All that are kept."""
        return iter(self._steps)

    def since(self, at_s: float) -> dict[str, list[Step]]:
        """Pool to its decisions since a time of the monotonic clock."""
        pools: dict[str, list[Step]] = {}
        for step in self._steps:
            if step.at_s >= at_s:
                pools.setdefault(step.pool, []).append(step)
        return pools


def shares(steps: Iterable[Step]) -> dict[str, float]:
    """Replica to its share of the decisions that chose somebody."""
    counts = Counter(step.replica for step in steps if step.replica)
    whole = counts.total()
    return {replica: round(count / whole, 4) for replica, count in counts.items()}


def hottest(steps: Iterable[Step], most: int) -> list[Prefix]:
    """The prefixes that spared the most tokens, that first."""
    found: dict[bytes, list[Step]] = {}
    for step in steps:
        if step.prefix:
            found.setdefault(step.prefix, []).append(step)
    prefixes = [
        Prefix(
            key,
            group[0].matched_tokens,
            len(group),
            tuple(sorted({step.replica for step in group if step.replica})),
        )
        for key, group in found.items()
    ]
    return sorted(prefixes, key=lambda each: (-each.tokens * each.requests, each.hash))[:most]


def _prefix(found: Fingerprint, matched: int) -> bytes:
    """The hash of the deepest checkpoint with at most so many tokens."""
    at = bisect_right(found.tokens, matched)
    return found.hashes[at - 1] if at else b""
