from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Histogram, generate_latest

from extproc.server.durations import Durations

BOUNDS = (0.001, 0.25, 1.0)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.one_of(st.floats(0, 2), st.sampled_from(BOUNDS)), max_size=20))
def test_it_shows_what_the_client_librarys_histogram_shows(values: list[float]) -> None:
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    durations = Durations("seconds", "Text.", BOUNDS)
    ours.register(durations)
    histogram = Histogram("seconds", "Text.", buckets=BOUNDS, registry=theirs)
    for value in values:
        durations.observe(value)
        histogram.observe(value)
    expected = [line for line in _lines(theirs) if "_created" not in line]
    assert _lines(ours) == expected


def _lines(registry: CollectorRegistry) -> list[str]:
    return generate_latest(registry).decode().splitlines()
