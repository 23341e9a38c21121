"""What replicas count themselves, read from their ``/metrics`` under vLLM's names."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

_NAMES = {
    "vllm:prefix_cache_queries_total": "queries",
    "vllm:prefix_cache_hits_total": "hits",
    "vllm:time_to_first_token_seconds_count": "requests",
    "vllm:num_requests_running": "open",
    "vllm:num_requests_waiting": "open",
}


@dataclass(frozen=True, slots=True)
class Counters:
    """One replica's counters.

    Attributes:
        queries: Prompt tokens looked up in the prefix cache.
        hits: Prompt tokens found there.
        requests: Requests that got their first token.
        open: Requests running or waiting now.
    """

    queries: float = 0
    hits: float = 0
    requests: float = 0
    open: float = 0

    def since(self, earlier: "Counters") -> "Counters":
        """What was counted since ``earlier``."""
        return Counters(
            self.queries - earlier.queries,
            self.hits - earlier.hits,
            self.requests - earlier.requests,
            self.open,
        )


def parse(text: str) -> Counters:
    """Read the Prometheus text of one replica; engines of one replica are added up."""
    totals = dict.fromkeys(("queries", "hits", "requests", "open"), 0.0)
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if name := _NAMES.get(sample.name):
                totals[name] += sample.value
    return Counters(**totals)


async def read(replicas: Sequence[str]) -> Mapping[str, Counters]:
    """The counters of each replica, by ``ip:port``.

    Raises:
        aiohttp.ClientError: If one does not answer.
        TimeoutError: If one does not answer within ten seconds.
    """
    timeout = aiohttp.ClientTimeout(total=10)
    async with aiohttp.ClientSession(timeout=timeout, raise_for_status=True) as session:

        async def one(address: str) -> Counters:
            async with session.get(f"http://{address}/metrics") as response:
                return parse(await response.text())

        return dict(zip(replicas, await asyncio.gather(*map(one, replicas)), strict=True))


def hit_rate(counters: Mapping[str, Counters]) -> float:
    """Share of all prompt tokens that were found in a cache."""
    queries = sum(counter.queries for counter in counters.values())
    return sum(counter.hits for counter in counters.values()) / queries if queries else 0.0


def shares(counters: Mapping[str, Counters]) -> tuple[float, float]:
    """The least and the most loaded replica's share of all requests."""
    requests = [counter.requests for counter in counters.values()]
    total = sum(requests)
    return (min(requests) / total, max(requests) / total) if total else (0.0, 0.0)
