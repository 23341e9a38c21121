"""Histograms of durations that cost little to add to."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate

from prometheus_client.core import HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

SHORT = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)
"""Bounds in seconds for steps of a request's way through the router."""

LONG = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
"""Bounds in seconds for what a replica takes."""


class Buckets:
    """Counts durations by size, for one thread.

    The client library's own histogram locks and walks its buckets for each value, which takes ten
    times as long.

    Args:
        bounds: Upper bounds of the buckets in seconds, ascending; one without bound is added.

    Attributes:
        counts: How many are in each bucket.
        sum: Seconds in all.
    """

    def __init__(self, bounds: Sequence[float]) -> None:
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0
        self._bounds = tuple(bounds)

    def observe(self, seconds: float) -> None:
        """Count a duration."""
        self.counts[bisect_left(self._bounds, seconds)] += 1
        self.sum += seconds

    def cumulative(self) -> list[tuple[str, float]]:
        """Each upper bound, and how many are not above it."""
        bounds = [*map(str, self._bounds), "+Inf"]
        return list(zip(bounds, map(float, accumulate(self.counts)), strict=True))


class Durations(Buckets, Collector):
    """A metric of durations, without labels.

    Args:
        name: Of the metric.
        text: What it is.
        bounds: As in ``Buckets``.
    """

    def __init__(self, name: str, text: str, bounds: Sequence[float]) -> None:
        super().__init__(bounds)
        self._name, self._text = name, text

    def collect(self) -> Iterator[Metric]:
        """The metric, as it is scraped."""
        yield HistogramMetricFamily(
            self._name, self._text, buckets=self.cumulative(), sum_value=self.sum
        )
