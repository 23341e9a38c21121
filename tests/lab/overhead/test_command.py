import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from extproc.lab.cli import app
from extproc.lab.overhead.stack import ALONE, FLOOR, MEMORY, VALKEY


def test_a_quick_run_measures_every_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # where no other router is installed
    monkeypatch.setenv("PATH", "/nowhere")
    argv = ["bench", "overhead", "--quick", "--peers", "--output", "out", "--json", "rows.json"]
    result = CliRunner().invoke(app, argv)
    assert result.exit_code == 0, result.output
    assert "sglang-router is left out" in result.output
    assert "make peers" in result.output
    for name in ("out/overhead.csv", "out/overhead.png", "out/overhead.json", "rows.json"):
        assert (tmp_path / name).stat().st_size > 0
    rows = json.loads((tmp_path / "rows.json").read_text())["rows"]
    assert [row["strategy"] for row in rows] == [ALONE, FLOOR, MEMORY, VALKEY] * 4
    assert {(row["size_kb"], row["prefix"], row["clients"]) for row in rows} == {
        (2, prefix, clients) for prefix in ("unique", "repeated") for clients in (1, 4)
    }
    for row in rows:
        alone = row["strategy"] == ALONE
        assert row["requests"] >= 19
        assert row["p50_ms"] > 0
        assert row["envoy_us"] > 0
        assert (row["router_us"] > 0) is not alone
        assert (row["memory_mb"] > 10) is not alone
        assert (row["store_us"] > 0) is (row["strategy"] == VALKEY)
        assert row["added_p50_ms_low"] <= row["added_p50_ms"] <= row["added_p50_ms_high"]


@pytest.mark.parametrize(
    "argument", [["--sizes", "2,x"], ["--clients", "0"], ["--prefixes", "some"]]
)
def test_arguments_that_make_no_sense_are_refused(argument: list[str]) -> None:
    result = CliRunner().invoke(app, ["bench", "overhead", *argument])
    assert result.exit_code == 2
    assert argument[0] in result.output
