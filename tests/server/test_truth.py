"""Predictions against what engines counted."""

from extproc.replicas.engine.report import Report
from extproc.server.stats import ReplicaStats
from extproc.server.truth import Truth

A, B = "10.0.0.1:80", "10.0.0.2:80"


def test_rates_are_of_the_same_time() -> None:
    truth = Truth()
    truth.compare({A: ReplicaStats(100, 100)}, {A: Report("vllm", queried_tokens=900)})
    found = truth.compare(
        {A: ReplicaStats(1100, 600)}, {A: Report("vllm", queried_tokens=2900, hit_tokens=800)}
    )
    assert found == {
        A: {
            "prompt_tokens": 1000,
            "predicted_rate": 0.5,
            "engine_tokens": 2000,
            "engine_rate": 0.4,
        }
    }


def test_an_engine_that_starts_again_begins_anew() -> None:
    truth = Truth()
    truth.compare({A: ReplicaStats()}, {A: Report("vllm", queried_tokens=900, hit_tokens=900)})
    counts = {A: ReplicaStats(1000, 900)}
    again = truth.compare(counts, {A: Report("vllm", queried_tokens=50)})
    assert again[A]["prompt_tokens"] == again[A]["engine_tokens"] == 0
    assert again[A]["predicted_rate"] is None
    counts = {A: ReplicaStats(1100, 900)}
    later = truth.compare(counts, {A: Report("vllm", queried_tokens=150)})
    assert (later[A]["predicted_rate"], later[A]["engine_rate"]) == (0, 0)


def test_engines_that_do_not_count_are_left_out() -> None:
    reports = {A: Report(error="no answer"), B: Report("orca", running=1)}
    assert Truth().compare({A: ReplicaStats(1, 1)}, reports) == {}
