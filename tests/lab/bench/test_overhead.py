from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extproc.lab.bench.overhead import ProcessorTime, RouterCost, parse

METRICS = """\
# TYPE prefix_extproc_decision_seconds histogram
prefix_extproc_decision_seconds_bucket{le="0.001"} 2
prefix_extproc_decision_seconds_bucket{le="0.01"} 8
prefix_extproc_decision_seconds_bucket{le="+Inf"} 10
prefix_extproc_decision_seconds_count 10
prefix_extproc_decision_seconds_sum 0.05
# TYPE process_cpu_seconds counter
process_cpu_seconds_total 3.5
"""


def test_a_routers_metrics_are_read() -> None:
    cost = parse(METRICS)
    assert cost == RouterCost(10, 0.05, {0.001: 2, 0.01: 8, float("inf"): 10}, 3.5)
    assert cost.mean_s == pytest.approx(0.005)
    assert cost.cpu_per_decision_s == pytest.approx(0.35)


def test_quantiles_are_linear_within_a_bucket() -> None:
    cost = parse(METRICS)
    assert cost.quantile_s(0.1) == pytest.approx(0.0005)
    assert cost.quantile_s(0.5) == pytest.approx(0.001 + 0.009 / 2)
    assert cost.quantile_s(0.99) == pytest.approx(0.01)  # beyond the last bound nothing is known


def test_nothing_decided_costs_nothing() -> None:
    cost = RouterCost()
    assert (cost.mean_s, cost.cpu_per_decision_s, cost.quantile_s(0.5)) == (0, 0, 0)


def costs() -> st.SearchStrategy[RouterCost]:
    count = st.integers(0, 1000)
    return st.builds(
        lambda low, high, cpu: RouterCost(
            low + high, low + 2 * high, {1.0: low, 2.0: low + high}, cpu
        ),
        count,
        count,
        count,
    )


@settings(max_examples=50, deadline=None)
@given(costs(), costs())
def test_what_was_added_can_be_taken_away(first: RouterCost, second: RouterCost) -> None:
    assert (first + second).since(second) == first
    assert first + second == second + first


def test_processor_time_of_the_benchmark_and_of_all(tmp_path: Path) -> None:
    (tmp_path / "stat").write_text("cpu  100 20 30 800 50 0 0 0 0 0\ncpu0 1 1 1 1\n")
    (tmp_path / "42").mkdir()
    fields = ["S", *["0"] * 10, "70", "30", "0"]
    (tmp_path / "42" / "stat").write_text(f"42 (a (strange) name) {' '.join(fields)}\n")
    now = ProcessorTime.now([42, 43], tmp_path)  # 43 is gone, and so is this process here
    assert now.own / now.total == pytest.approx(0.1)
    assert now.own_share == pytest.approx(0.1)
    assert now.busy_share == pytest.approx(0.15)
    assert now.since(now) == (0, 0, 0)
    assert now.since(now).busy_share == 0


def test_where_there_is_no_proc_nothing_is_known(tmp_path: Path) -> None:
    assert ProcessorTime.now([], tmp_path) == (0, 0, 0)
