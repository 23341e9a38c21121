"""How a replica stands beyond what the store knows of it."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

MOST_QUEUED = 1_000_000_000


class Standing(NamedTuple):
    """A replica's standing against one that is healthy, warm and serves nobody else.

    Attributes:
        weight_milli: Thousandths of a full replica's load that it can bear, 1 to 1000: what it
            has in flight and pending counts as that much more.
        queued_tokens: Tokens to prefill that it has beyond those that were reserved here, at most
            ``MOST_QUEUED``.
    """

    weight_milli: int = 1000
    queued_tokens: int = 0


FULL = Standing()

Standings = Mapping[str, Standing]
"""Replica to standing; who is not in it stands at ``FULL``."""


def apparent(
    standings: Sequence[Standing], in_flight: Sequence[int], pending: Sequence[int]
) -> tuple[list[int], list[int]]:
    """Requests and tokens as they weigh on each candidate.

    Args:
        standings: Of each candidate.
        in_flight: Open requests at each.
        pending: Reserved tokens not yet prefilled at each.
    """
    return (
        [
            n * 1000 // standing.weight_milli
            for standing, n in zip(standings, in_flight, strict=True)
        ],
        [
            (tokens + standing.queued_tokens) * 1000 // standing.weight_milli
            for standing, tokens in zip(standings, pending, strict=True)
        ],
    )


def together(parts: Iterable[Standings]) -> dict[str, Standing]:
    """Several views of the same replicas as one: all their weights, and all queued tokens."""
    whole: dict[str, Standing] = {}
    for part in parts:
        for replica, standing in part.items():
            before = whole.get(replica, FULL)
            whole[replica] = Standing(
                max(1, before.weight_milli * standing.weight_milli // FULL.weight_milli),
                min(before.queued_tokens + standing.queued_tokens, MOST_QUEUED),
            )
    return whole
