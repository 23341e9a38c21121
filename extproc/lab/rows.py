"""What every measurement of routing reports."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What one strategy gave: the columns that all commands of the lab have.

    Attributes:
        strategy: Its name.
        hit_rate: Share of prompt tokens that the replicas found in their caches.
        ttft_p50_s: Median time to first token.
        ttft_p90_s: The time within which 90 % had their first token.
        ttft_p99_s: The time within which 99 % had their first token.
        ttft_mean_s: Mean time to first token.
        requests_per_s: Answered requests from the first sending to the last end.
        share_min: The least loaded replica's share of the requests.
        share_max: The most loaded replica's share of the requests.
        requests: Requests sent.
        failed: Requests without a whole answer.
    """

    strategy: str
    hit_rate: float
    ttft_p50_s: float
    ttft_p90_s: float
    ttft_p99_s: float
    ttft_mean_s: float
    requests_per_s: float
    share_min: float
    share_max: float
    requests: int
    failed: int

    def as_json(self) -> dict[str, Any]:
        """The row with its field names as keys."""
        return asdict(self)


def percentile(ascending: Sequence[float], percent: float) -> float:
    """The value below which so many percent of ``ascending`` lie, between neighbours."""
    place = (len(ascending) - 1) * percent / 100
    low = int(place)
    high = min(low + 1, len(ascending) - 1)
    return ascending[low] + (ascending[high] - ascending[low]) * (place - low)
