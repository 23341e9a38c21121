"""A histogram of durations that costs little to add to."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate

from prometheus_client.core import HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

SHORT = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)
"""Bounds in seconds for steps of a request's way through the router."""


class Durations(Collector):
    """Counts durations by size, for one thread.

    The client library's own histogram locks and walks its buckets for each value, which takes ten
    times as long.

    Args:
        name: Of the metric.
        text: What it is.
        bounds: Upper bounds of the buckets in seconds, ascending; one without bound is added.
    """

    def __init__(self, name: str, text: str, bounds: Sequence[float]) -> None:
        self._name, self._text = name, text
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, seconds: float) -> None:
        """Count a duration."""
        self._counts[bisect_left(self._bounds, seconds)] += 1
        self._sum += seconds

    def collect(self) -> Iterator[Metric]:
        """The metric, as it is scraped."""
        bounds = [*map(str, self._bounds), "+Inf"]
        counts = map(float, accumulate(self._counts))
        buckets = list(zip(bounds, counts, strict=True))
        yield HistogramMetricFamily(self._name, self._text, buckets=buckets, sum_value=self._sum)
