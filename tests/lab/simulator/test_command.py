import csv
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from extproc.lab.rows import percentile
from extproc.lab.simulator.command import app

KEYS = {
    *("strategy", "hit_rate", "ttft_p50_s", "ttft_p90_s", "ttft_p99_s", "ttft_mean_s"),
    *("requests_per_s", "share_min", "share_max", "requests", "failed"),
}


def test_rows_for_people_and_scripts(tmp_path: Path) -> None:
    result = CliRunner().invoke(
        app,
        [
            *("simulate", "chat", "--strategies", "random,kv_aware", "--replicas", "2"),
            *("--routers", "2", "--state", "separate", "--limit", "60", "--jobs", "1"),
            *("--seed", "3", "--set", "decode-weight=100"),
            *("--json", str(tmp_path / "rows.json"), "--csv", str(tmp_path / "rows.csv")),
            *("--charts", str(tmp_path / "charts"), "--report", str(tmp_path / "report.html")),
        ],
    )
    assert result.exit_code == 0, result.output
    assert "2 routers, separate state" in result.output
    written = json.loads((tmp_path / "rows.json").read_text())
    assert written.keys() == {"command", "machine", "seed", "rows"}
    assert written["seed"] == 3
    assert [row["strategy"] for row in written["rows"]] == ["random", "kv_aware"]
    assert all(row.keys() >= KEYS for row in written["rows"])
    with (tmp_path / "rows.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [float(row["hit_rate"]) for row in rows] == [row["hit_rate"] for row in written["rows"]]
    assert {path.name for path in (tmp_path / "charts").iterdir()} == {
        *("ttft.png", "hit-rate.png", "load.png")
    }
    assert "(kv_aware)" in (tmp_path / "report.html").read_text()


def test_a_row_for_each_strategy_and_seed(tmp_path: Path) -> None:
    file = tmp_path / "made" / "rows.csv"
    result = CliRunner().invoke(
        app,
        [
            *("simulate", "no-sharing", "--strategies", "random,round_robin", "--replicas", "2"),
            *("--limit", "20", "--jobs", "1", "--seed", "5", "--seeds", "2", "--csv", str(file)),
        ],
    )
    assert result.exit_code == 0, result.output
    with file.open() as opened:
        rows = list(csv.DictReader(opened))
    found = [(row["workload"], row["strategy"], row["seed"], row["replicas"]) for row in rows]
    assert found == [
        ("no-sharing", strategy, seed, "2")
        for strategy in ("random", "round_robin")
        for seed in ("5", "6")
    ]
    assert rows[0].keys() >= {*KEYS, "latency_mean_s", "routers", "state", "profile"}
    assert rows[0]["ttft_mean_s"] != rows[1]["ttft_mean_s"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing"], "neither a file nor one of chat"),
        (["chat", "--strategies", "kv"], "none of"),
        (["chat", "--strategies", ","], "name at least one"),
        (["chat", "--profile", "x"], "none of llama"),
        (["chat", "--set", "prefill-rate"], "not KEY=VALUE"),
        (["chat", "--set", "prefil-rate=1"], "did you mean x-prefix-prefill-rate"),
    ],
)
def test_mistakes_are_told(arguments: list[str], message: str) -> None:
    result = CliRunner(env={"COLUMNS": "1000"}).invoke(app, ["simulate", *arguments])
    assert result.exit_code == 2
    assert message in result.output


def test_a_bad_trace_is_told(tmp_path: Path) -> None:
    file = tmp_path / "x.jsonl"
    file.write_text("nothing\n")
    result = CliRunner().invoke(app, ["simulate", str(file), "--jobs", "1"])
    assert result.exit_code == 1
    assert "line 1: not a JSON object" in result.output


def test_a_decision_log(tmp_path: Path) -> None:
    file, rows = tmp_path / "decisions.jsonl", tmp_path / "rows.json"
    line = {"total_tokens": 100, "tokens": [64], "hashes": ["0a"]}
    file.write_text(
        "".join(
            json.dumps({"timestamp": 1000 * number, "pool": pool, **line}) + "\n"
            for number, pool in enumerate(["llm", "gold", "llm"])
        )
    )
    arguments = ["simulate", str(file), "--jobs", "1", "--replicas", "1"]
    arguments += ["--strategies", "kv_aware", "--output-tokens", "5", "--json", str(rows)]
    mixed = CliRunner().invoke(app, arguments)
    assert mixed.exit_code == 1
    assert "choose one with --pool" in mixed.output

    result = CliRunner().invoke(app, [*arguments, "--pool", "llm"])
    assert result.exit_code == 0, result.output
    (row,) = json.loads(rows.read_text())["rows"]
    assert (row["requests"], row["hit_rate"]) == (2, 64 / 200)


def test_percentiles_lie_between_neighbours() -> None:
    assert percentile([1.0], 90) == 1.0
    assert percentile([0.0, 10.0], 90) == 9.0
    assert percentile([1.0, 2.0, 3.0], 50) == 2.0
