import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from extproc.lab.cli import app


def test_every_case_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    argv = ["bench", "store", "--prompts", "4,32", "--replicas", "8", "--routers", "1,2"]
    argv += ["--decisions", "20", "--rounds", "1", "--json", "more/rows.json"]
    result = CliRunner().invoke(app, argv)
    assert result.exit_code == 0, result.output
    folder = tmp_path / "prefix-extproc-bench"
    for ending in ("csv", "png"):
        assert (folder / f"store.{ending}").stat().st_size > 0
    content = json.loads((folder / "store.json").read_text())
    assert content == json.loads((tmp_path / "more" / "rows.json").read_text())
    rows = content["rows"]
    cases = [(row["routers"], row["prompt_kb"], row["prompts"]) for row in rows]
    assert sorted(cases) == sorted(
        (routers, size, prompts)
        for routers in (1, 2)
        for size in (4, 32)
        for prompts in ("known", "new")
    )
    for row in rows:
        assert row["decisions"] == 20
        assert row["reserve_us"] > 0
        assert row["scripts_us"] > 0
        assert row["valkey_us"] > 0
        assert row["router_us"] > 0


def test_an_argument_that_makes_no_sense_is_refused() -> None:
    result = CliRunner().invoke(app, ["bench", "store", "--replicas", "none"])
    assert result.exit_code == 2
    assert "--replicas" in result.output
