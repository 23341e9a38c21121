from hypothesis import given
from hypothesis import strategies as st

from extproc.routing import Decision, Reason
from extproc.server.dashboard.history import INTERVAL_S, WINDOW_S, History, quantile
from extproc.server.durations import LONG, Buckets
from extproc.server.stats import Stats

HIT = Decision(("a",), Reason.MATCHED, 80, 90, 100)
MISS = Decision(("a",), Reason.COLD, 0, 0, 100)


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def test_only_the_last_minutes_count() -> None:
    stats, clock = Stats(), Clock()
    history = History(stats, clock)
    pool = stats.pool("llm")
    for _ in range(7):
        pool.decided(MISS)
    pool.start_seconds.observe(200.0)
    for _ in range(int(WINDOW_S / INTERVAL_S) + 1):
        history.sample()
        clock.now_s += INTERVAL_S
    pool.decided(HIT)
    pool.decided(MISS)
    pool.start_seconds.observe(0.02)

    recent = history.recent("llm")

    assert recent["decisions"] == 2
    assert recent["seconds"] == WINDOW_S + INTERVAL_S
    assert recent["hit_rate"] == 0.4
    assert recent["best_rate"] == 0.45
    assert recent["reasons"] == {"matched": 1, "cold": 1}
    assert recent["start"]["count"] == 1
    assert recent["start"]["p90_ms"] <= 25
    assert recent["whole"] == {"count": 0, "p50_ms": None, "p90_ms": None}
    assert recent["series"][-1] == {"age_s": 0.0, "per_s": 0.4, "hit_rate": 0.4}
    assert {each["hit_rate"] for each in recent["series"][:-1]} == {None}


def test_the_newest_point_is_not_that_of_a_moment() -> None:
    stats, clock = Stats(), Clock()
    history = History(stats, clock)
    pool = stats.pool("llm")
    for _ in range(3):
        history.sample()
        clock.now_s += INTERVAL_S
        for _ in range(10):
            pool.decided(HIT)
    history.sample()
    pool.decided(MISS)
    clock.now_s += INTERVAL_S / 50

    recent = history.recent("llm")

    assert [each["age_s"] for each in recent["series"]] == [10.1, 5.1, 0.0]
    assert [each["per_s"] for each in recent["series"]] == [2.0, 2.0, 2.16]
    assert recent["decisions"] == 31
    clock.now_s += INTERVAL_S / 2
    assert len(history.recent("llm")["series"]) == 4


def test_a_pool_that_came_later_counts_from_nothing() -> None:
    stats, clock = Stats(), Clock()
    history = History(stats, clock)
    history.sample()
    stats.pool("late").decided(HIT)
    clock.now_s += 1

    assert history.recent("late")["decisions"] == 1
    assert history.recent("nowhere")["decisions"] == 0


def test_without_a_sample_nothing_is_recent() -> None:
    stats = Stats()
    stats.pool("llm").decided(HIT)

    recent = History(stats).recent("llm")

    assert recent["decisions"] == 0
    assert recent["series"] == []


@given(
    st.lists(st.floats(0, 299), min_size=1, max_size=50),
    st.floats(0.01, 1),
)
def test_a_quantile_lies_in_the_bucket_of_the_true_one(values: list[float], share: float) -> None:
    buckets = Buckets(LONG)
    for value in values:
        buckets.observe(value)

    found = quantile(LONG, buckets.counts, share)

    wanted = share * len(values)
    true = next(value for rank, value in enumerate(sorted(values), 1) if rank >= wanted)
    bounds = (0.0, *LONG)
    [bucket] = [
        (low, high)
        for low, high in zip(bounds, LONG, strict=False)
        if low < true <= high or true == low == 0.0
    ]
    assert found is not None
    assert bucket[0] <= found <= bucket[1] * (1 + 1e-9)


def test_a_quantile_beyond_the_last_bound_is_that_bound() -> None:
    assert quantile((1.0, 2.0), (0, 0, 5), 0.5) == 2.0
    assert quantile((1.0, 2.0), (0, 0, 0), 0.5) is None
