"""Steady traffic for a stack that runs elsewhere, and what came of it."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from extproc.lab import load
from extproc.lab.rows import percentile
from extproc.lab.workload import Workload, shared_prefixes

ROUND = 240
"""Requests that draw from the same prefixes; then others come up, as documents and tenants do."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """What to send.

    Attributes:
        rate: Requests per second.
        requests: How many; 0: without end.
        groups: Prefixes that are in use at a time.
        prefix_tokens: Length of a prefix.
        output_tokens: Length of an answer.
        seed: Of everything drawn.
        model: The model's name in each request.
    """

    rate: float
    requests: int = 0
    groups: int = 16
    prefix_tokens: int = 8000
    output_tokens: int = 32
    seed: int = 1
    model: str = "llama-3.1-70b"

    def rounds(self) -> Iterator[Workload]:
        """One workload after the other, each with prefixes of its own."""
        sent = 0
        while not self.requests or sent < self.requests:
            requests = min(ROUND, self.requests - sent) if self.requests else ROUND
            yield shared_prefixes(
                seed=self.seed + sent,
                groups=self.groups,
                requests=requests,
                rate=self.rate,
                prefix_tokens=self.prefix_tokens,
                output_tokens=self.output_tokens,
                model=self.model,
            )
            sent += requests


async def send(traffic: Traffic, url: str, tell: Callable[[str], None]) -> int:
    """Send traffic, and tell after each round what came of it.

    Args:
        traffic: What to send.
        url: Base URL of the proxy.
        tell: Takes one line.

    Returns:
        How many requests failed.
    """
    failed = 0
    for workload in traffic.rounds():
        records = await load.run(workload, url)
        failed += sum(not record.ok for record in records)
        tell(summary(records))
    return failed


def summary(records: Sequence[load.Record]) -> str:
    """One line about a round; its last part is why the first failed request failed.

    Args:
        records: At least one.
    """
    good = [record for record in records if record.ok]
    line = f"{len(records)} requests, {len(records) - len(good)} failed"
    if tokens := sum(record.prompt_tokens for record in good):
        times = sorted(record.ttft_s for record in good)
        line += (
            f", hit rate {sum(record.cached_tokens for record in good) / tokens:.1%}"
            f", TTFT P50 {percentile(times, 50) * 1000:.0f} ms"
            f", P90 {percentile(times, 90) * 1000:.0f} ms"
        )
    bad = next((record for record in records if not record.ok), None)
    return line if bad is None else f"{line}; {bad.error or f'status {bad.status}'}"
