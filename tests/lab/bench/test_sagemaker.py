import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from extproc.lab.bench.published import CHATS, SATURATION, SHARED
from extproc.lab.bench.sagemaker import EXPERIMENTS, SagemakerOptions, workload
from extproc.lab.cli import app
from extproc.lab.workload import infinite_cache_hit_rate

RUNNER = CliRunner()


def test_endless_caches_would_find_a_little_more_than_amazon_saw() -> None:
    assert infinite_cache_hit_rate(workload(SagemakerOptions(), SHARED, 0)) == pytest.approx(
        0.835, abs=0.005
    )


def test_rounds_and_experiments_share_no_prompts() -> None:
    options = SagemakerOptions(requests=13)
    beginnings = [
        {chat.system or chat.turns[0] for chat in workload(options, name, number).conversations}
        for name in EXPERIMENTS
        for number in range(3)
    ]
    assert len(set.union(*beginnings)) == sum(map(len, beginnings))
    assert workload(options, CHATS, 1) == workload(options, CHATS, 1)


def test_at_saturation_all_wait_for_their_turn() -> None:
    work = workload(SagemakerOptions(requests=13, replicas=3, concurrency=2), SATURATION, 0)
    assert work.concurrency == 6
    assert {chat.at_s for chat in work.conversations} == {0.0}
    assert "6 at a time" in work.name


@pytest.mark.parametrize("option", ["--strategies", "--experiments"])
def test_unknown_names_are_told(option: str) -> None:
    result = RUNNER.invoke(app, ["bench", "sagemaker", option, "coin"])
    assert result.exit_code == 2
    assert "coin" in result.output


def test_a_short_run(tmp_path: Path) -> None:
    file = tmp_path / "rows.json"
    arguments = ["bench", "sagemaker", "--json", str(file), "--logs", str(tmp_path / "logs")]
    arguments += ["--replicas", "2", "--requests", "13", "--rounds", "2", "--seed", "3"]
    arguments += ["--strategies", "random,kv_aware", "--rate", "40", "--chat-rate", "200"]
    arguments += ["--speed", "4", "--chat-speed", "50"]
    result = RUNNER.invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert "replicas at 4 x the model's speed" in result.output
    assert "replicas at 50 x the model's speed" in result.output
    content = json.loads(file.read_text())
    assert content["seed"] == 3
    rows = {(row["experiment"], row["strategy"]): row for row in content["rows"]}
    assert rows.keys() == {(name, s) for name in EXPERIMENTS for s in ("random", "kv_aware")}
    for row in rows.values():
        assert (row["requests"], row["failed"], row["rounds"]) == (26, 0, 2)
        assert 0 < row["hit_rate"] <= row["infinite_hit_rate"] + 0.001
        assert 0 < row["decision_p50_s"] <= row["decision_p99_s"]
        assert row["ttft_p50_s"] <= row["ttft_p90_s"] <= row["ttft_p99_s"]
    assert {target["strategy"] for target in content["targets"]} == {"kv_aware"}
    assert (tmp_path / "logs" / SHARED / "envoy.log").exists()
