"""Metric families from rows of numbers."""

from collections.abc import Iterable

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)

from extproc.server.durations import Buckets


def counter(
    name: str, text: str, labels: Iterable[str], rows: Iterable[tuple[tuple[str, ...], float]]
) -> CounterMetricFamily:
    """A counter's family: label values to number in each row."""
    family = CounterMetricFamily(f"prefix_extproc_{name}", text, labels=list(labels))
    for values, number in rows:
        family.add_metric(values, number)
    return family


def gauge(
    name: str, text: str, labels: Iterable[str], rows: Iterable[tuple[tuple[str, ...], float]]
) -> GaugeMetricFamily:
    """A gauge's family: label values to number in each row."""
    family = GaugeMetricFamily(f"prefix_extproc_{name}", text, labels=list(labels))
    for values, number in rows:
        family.add_metric(values, number)
    return family


def durations(name: str, text: str, rows: Iterable[tuple[str, Buckets]]) -> HistogramMetricFamily:
    """A histogram's family: pool to its buckets in each row."""
    family = HistogramMetricFamily(f"prefix_extproc_{name}", text, labels=["pool"])
    for pool, buckets in rows:
        family.add_metric([pool], buckets.cumulative(), buckets.sum)
    return family
