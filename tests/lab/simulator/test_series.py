"""Curves of a few points from records of any number."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extproc.lab.simulator import series
from tests.lab.simulator.samples import records, steady


def test_the_distribution_of_times() -> None:
    run = records(*((0.0, ttft / 100, 9.0, 1, 0, 0) for ttft in range(101)))
    times = series.times_to_first_token([run])
    assert len(times) == len(series.SHARES)
    assert times == pytest.approx(series.SHARES / 100)


def test_what_has_no_first_token_has_no_time_to_it() -> None:
    run = records((0.0, 0.5, 1.0, 1, 0, 0), (0.0, -1.0, -1.0, 1, 0, 0))
    assert series.times_to_first_token([run]) == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("requests", "expected"), [(1, 1), (39, 1), (40, 2), (10_000, series.MAX_BUCKETS)]
)
def test_buckets_hold_enough_to_say_something(requests: int, expected: int) -> None:
    bounds = series.buckets([steady(0.1, 0, requests=requests)])
    assert len(bounds) == expected + 1
    assert bounds[0] == 0
    assert bounds[-1] == (requests - 1 or 1)


def test_hits_count_where_they_were_sent_and_by_tokens() -> None:
    early = [(0.5, 0.1, 1.0, 100, 0, 0)] * 9 + [(0.5, 0.1, 1.0, 1100, 1000, 0)]
    late = [(1.5, 0.1, 2.0, 100, 50, 0)] * 5
    bounds = np.array([0.0, 1.0, 2.0])
    rates = series.hit_rates([records(*early, *late)], bounds)
    assert rates[0] == 0.5
    assert np.isnan(rates[1])
    assert series.hit_rates([records(*late), records(*late)], bounds)[1] == 0.5


def test_loads_are_means_over_the_bucket() -> None:
    run = records(
        (0.0, 0.1, 2.0, 1, 0, 0),
        (0.5, 0.1, 1.0, 1, 0, 0),
        (1.5, 0.1, -1.0, 1, 0, 1),
    )
    loads = series.loads(run, 3, np.array([0.0, 1.0, 2.0, 4.0]))
    assert loads.tolist() == [[1.5, 1.0, 0.0], [0.0, 0.5, 1.0], [0.0, 0.0, 0.0]]


@settings(max_examples=30, deadline=None)
@given(
    st.lists(
        st.tuples(st.floats(0, 90), st.floats(0, 10), st.integers(0, 3)), min_size=1, max_size=50
    )
)
def test_all_time_in_flight_is_in_some_bucket(calls: list[tuple[float, float, int]]) -> None:
    run = records(*((sent, 0.0, sent + took, 1, 0, replica) for sent, took, replica in calls))
    bounds = np.linspace(0, 100, 8)
    loads = series.loads(run, 4, bounds)
    assert (loads >= -1e-9).all()
    spent = (loads * np.diff(bounds)).sum()
    assert spent == pytest.approx(sum(took for _, took, _ in calls), abs=1e-6)
