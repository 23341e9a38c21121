"""The accounting of one replica: requests in flight, and prefill that is reserved but not done.

The Redis scripts keep the same numbers in the same way (``lua/prelude.lua``). Integers only.
"""

from dataclasses import dataclass

BLOCK = 16
"""Tokens of a cache block, the smallest that engines use."""

_WRAP = 1 << 32


@dataclass(slots=True)
class Account:
    """One replica's load over all routers.

    Pending tokens form a queue that drains at the pool's prefill rate. ``drained`` counts all
    tokens that ever left it by draining, so a reservation knows by its ``end`` (the count at which
    its last token is gone) how many of its own tokens are still there.

    Attributes:
        in_flight: Open reservations.
        pending: Tokens in the queue.
        clock_us: Up to when the queue is drained, in Unix microseconds. It advances only by what
            was drained, so many short steps drain as much as one long step.
        drained: Tokens drained so far.
        epoch: Unix seconds before which the replica's affinity is void.
        incarnation: What the replica was last told to run as.
        taken: Blocks that reservations brought to its cache so far, modulo 2^32.
    """

    in_flight: int = 0
    pending: int = 0
    clock_us: int = 0
    drained: int = 0
    epoch: int = 0
    incarnation: str = ""
    taken: int = 0

    def drain(self, now_us: int, rate: int) -> None:
        """Let ``rate`` tokens per second leave the queue up to ``now_us``."""
        done = min(self.pending, max(0, now_us - self.clock_us) * rate // 1_000_000)
        self.pending -= done
        self.drained += done
        if self.pending == 0:
            self.clock_us = now_us
        else:
            self.clock_us += done * 1_000_000 // rate

    def pending_at(self, now_us: int, rate: int) -> int:
        """Tokens in the queue at ``now_us``, changing nothing."""
        return self.pending - min(self.pending, max(0, now_us - self.clock_us) * rate // 1_000_000)

    def take(self, tokens: int) -> int:
        """Add a reservation (after ``drain``) and return its ``end``."""
        self.in_flight += 1
        self.pending += tokens
        self.taken = (self.taken + -(-tokens // BLOCK)) % _WRAP
        return self.drained + self.pending

    def give_back(self, tokens: int, end: int) -> None:
        """Remove a reservation (after ``drain``) with what is left of its tokens."""
        self.in_flight = max(0, self.in_flight - 1)
        left = min(tokens, max(0, end - self.drained))
        self.pending = max(0, self.pending - left) if self.in_flight else 0
