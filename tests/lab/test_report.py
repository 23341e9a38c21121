import json
from pathlib import Path

import pytest
from rich.console import Console

from extproc.lab import report
from extproc.lab.counters import Counters, hit_rate, parse, shares
from extproc.lab.experiment import Outcome, summarize
from extproc.lab.load import Record
from extproc.lab.rows import percentile

COUNTED = {"a:1": Counters(300, 100, 3), "b:1": Counters(100, 100, 1)}


def outcome(strategy: str, ttft_s: float) -> Outcome:
    records = [Record(index, ttft_s, index + 1.0, 200) for index in range(4)]
    records.append(Record(4, -1, 5, 503, error="gone"))
    return Outcome(summarize(strategy, records, COUNTED), records, COUNTED)


def test_counters_are_read_under_vllms_names() -> None:
    text = (
        "# TYPE vllm:prefix_cache_queries counter\n"
        'vllm:prefix_cache_queries_total{engine="0"} 10\n'
        'vllm:prefix_cache_queries_total{engine="1"} 5\n'
        "# TYPE vllm:prefix_cache_hits counter\n"
        'vllm:prefix_cache_hits_total{engine="0"} 4\n'
        "# TYPE vllm:time_to_first_token_seconds histogram\n"
        'vllm:time_to_first_token_seconds_bucket{le="+Inf"} 2\n'
        "vllm:time_to_first_token_seconds_count 2\n"
        "vllm:time_to_first_token_seconds_sum 1\n"
        "# TYPE vllm:num_requests_running gauge\n"
        "vllm:num_requests_running 3\n"
    )
    assert parse(text) == Counters(queries=15, hits=4, requests=2, open=3)


def test_rates_over_all_replicas() -> None:
    assert hit_rate(COUNTED) == 0.5
    assert shares(COUNTED) == (0.25, 0.75)
    assert Counters(10, 5, 3, 1).since(Counters(4, 2, 1, 7)) == Counters(6, 3, 2, 1)


@pytest.mark.parametrize(("percent", "value"), [(50, 3.0), (90, 4.6), (99, 4.96)])
def test_percentiles(percent: int, value: float) -> None:
    assert percentile([1.0, 2.0, 3.0, 4.0, 5.0], percent) == pytest.approx(value)
    assert percentile([7.0], percent) == 7.0


def test_a_row_sums_up_answered_requests() -> None:
    row = outcome("random", 0.5).row
    assert (row.requests, row.failed) == (5, 1)
    assert row.ttft_mean_s == 0.5
    assert row.requests_per_s == 1.0
    assert row.hit_rate == 0.5


def test_the_table_compares_with_the_first_row() -> None:
    console = Console(width=80, record=True, file=None, quiet=False)
    with console.capture() as capture:
        rows = [outcome("random", 0.5).row, outcome("kv_aware", 0.05).row]
        console.print(report.table(rows, title="a test", bound=0.8))
    text = capture.get()
    assert "500 ms" in text
    assert "50 ms  -90%" in text
    assert "62%" in text
    assert "1 of 5" in text


def test_rows_for_scripts(tmp_path: Path) -> None:
    path = tmp_path / "made" / "rows.json"
    report.write_json(path, report.document("demo --seed 3", 3, [outcome("random", 0.5).row]))
    content = json.loads(path.read_text())
    assert content.keys() == {"command", "machine", "seed", "rows"}
    assert content["seed"] == 3
    assert content["rows"][0].keys() >= {
        *("strategy", "hit_rate", "ttft_p50_s", "ttft_p90_s", "ttft_p99_s", "ttft_mean_s"),
        *("requests_per_s", "share_min", "share_max", "requests", "failed"),
    }


def test_the_chart_is_a_png(tmp_path: Path) -> None:
    path = tmp_path / "made" / "chart.png"
    outcomes = [outcome("random", 0.5), outcome("kv_aware", 0.05)]
    report.write_chart(path, outcomes, title="a test", bound=0.8)
    assert path.read_bytes().startswith(b"\x89PNG")
