"""The replicas of a simulation, and what may be seen of them."""

from collections.abc import Sequence
from dataclasses import dataclass

from extproc.lab.replica.cache import BlockCache
from extproc.lab.replica.engine import Engine
from extproc.lab.replica.latency import Profile
from extproc.lab.simulator.calls import Call

SCRAPE_S = 0.05
"""How often peers read the engines' metrics (the Gateway API Inference Extension's default)."""


@dataclass(frozen=True, slots=True)
class Scraped:
    """What an engine's metrics said.

    Attributes:
        waiting: Requests that wait for a place in the batch.
        running: Requests in the batch.
    """

    waiting: int
    running: int


class Fleet:
    """Replicas on one clock.

    Args:
        profile: Of each replica.
        replicas: How many.
        cache_tokens: Capacity of each cache; 0 takes the profile's.
    """

    def __init__(self, profile: Profile, replicas: int, cache_tokens: int = 0) -> None:
        self.profile = profile
        self.now_s = 0.0
        self.cache_tokens = cache_tokens or profile.kv_tokens
        self.names = tuple(
            f"10.{number >> 8 & 255}.{number & 255}.1:8000" for number in range(replicas)
        )
        self.engines = [Engine(profile, BlockCache(self.cache_tokens)) for _ in range(replicas)]
        self._scraped: Sequence[Scraped] = ()
        self._scraped_at = -1.0

    def clock_us(self) -> int:
        """The time in microseconds, as a store wants it."""
        return 1_000_000_000_000 + round(self.now_s * 1_000_000)

    def scraped(self) -> Sequence[Scraped]:
        """Every engine's metrics, at most ``SCRAPE_S`` old."""
        if self._scraped_at < 0 or self.now_s - self._scraped_at >= SCRAPE_S:
            self._scraped = [Scraped(each.waiting, each.running) for each in self.engines]
            self._scraped_at = self.now_s
        return self._scraped

    def cached_tokens(self, replica: int, call: Call) -> int:
        """Prompt tokens that a replica would find in its cache if it started with them now."""
        cache = self.engines[replica].cache
        low, high = 0, min((call.prompt_tokens - 1) // cache.block_tokens, len(call.chain))
        # A block is never without those before it, so the first missing one is found by halving.
        while low < high:
            middle = (low + high) // 2
            if call.chain[middle] in cache:
                low = middle + 1
            else:
                high = middle
        return low * cache.block_tokens
