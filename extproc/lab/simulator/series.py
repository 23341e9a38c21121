"""Records of any number of requests as curves of a few points."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from extproc.lab.simulator.loop import Records

Floats = NDArray[np.float64]

MAX_BUCKETS = 50
MIN_PER_BUCKET = 20
"""Requests in a bucket of time, on average."""

LEAST = 10
"""With fewer requests a bucket's share of hits is left out: it would be chance."""

SHARES: Floats = np.concatenate([np.linspace(0, 99, 199), np.linspace(99.1, 100, 10)])
"""Where distributions are read, in percent; denser at the end, where the slow ones are."""


def times_to_first_token(runs: Sequence[Records]) -> Floats:
    """The times within which ``SHARES`` of the answered requests of all runs had their first token.

    Returns:
        Seconds, ascending, one for each of ``SHARES``.
    """
    times = np.concatenate([_column(records.ttft_s) for records in runs])
    ascending: Floats = np.quantile(times[times >= 0], SHARES / 100)
    return ascending


def buckets(runs: Sequence[Records]) -> Floats:
    """Bounds of equal spans of time from the start to the last request's sending.

    Args:
        runs: At least one, with at least one request.

    Returns:
        Seconds, one more than there are buckets; at least 1 and at most ``MAX_BUCKETS``.
    """
    end = max(float(_column(records.sent_s).max()) for records in runs)
    requests = max(len(records.sent_s) for records in runs)
    count = min(max(requests // MIN_PER_BUCKET, 1), MAX_BUCKETS)
    return np.linspace(0, end or 1.0, count + 1)


def hit_rates(runs: Sequence[Records], bounds: Floats) -> Floats:
    """Share of prompt tokens found in caches, by when the request was sent.

    Args:
        runs: All count together.
        bounds: Of the buckets, as ``buckets`` gives them.

    Returns:
        One for each bucket, NaN where fewer than ``LEAST`` requests were sent.
    """
    requests, cached, total = np.zeros((3, len(bounds) - 1))
    for records in runs:
        sent = _column(records.sent_s)
        requests += np.histogram(sent, bounds)[0]
        cached += np.histogram(sent, bounds, weights=_column(records.cached_tokens))[0]
        total += np.histogram(sent, bounds, weights=_column(records.prompt_tokens))[0]
    unknown = np.full(len(total), np.nan)
    rates: Floats = np.divide(cached, total, out=unknown, where=requests >= LEAST)
    return rates


def loads(records: Records, replicas: int, bounds: Floats) -> Floats:
    """Requests in flight at each replica, the mean of each bucket.

    Args:
        records: One run; what did not end counts as in flight to the end.
        replicas: How many.
        bounds: Of the buckets.

    Returns:
        Of shape (replicas, buckets).
    """
    sent, ended = _column(records.sent_s), _column(records.ended_s)
    ended = np.where(ended < 0, np.inf, ended)
    replica = _column(records.replica)
    spent = np.array(
        [
            _seconds_since(sent[replica == number], bounds)
            - _seconds_since(ended[replica == number], bounds)
            for number in range(replicas)
        ]
    )
    means: Floats = np.diff(spent, axis=1) / np.diff(bounds)
    return means


def _seconds_since(events: Floats, bounds: Floats) -> Floats:
    """For each bound: the sum of the times since all events before it."""
    events = np.sort(events)
    finite = events[np.isfinite(events)]
    before = np.searchsorted(finite, bounds)
    sums = np.concatenate([[0.0], np.cumsum(finite)])
    seconds: Floats = bounds * before - sums[before]
    return seconds


def _column(values: Any) -> Floats:
    return np.asarray(values, dtype=np.float64)
