import io
import json
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from extproc.lab.bench.published import CHATS
from extproc.lab.bench.report import present
from extproc.lab.bench.sagemaker import Result
from tests.lab.bench.samples import BASE, GOOD


def shown(results: list[Result], path: Path | None = None) -> str:
    output = io.StringIO()
    present(results, Console(file=output, width=200), command="bench", seed=7, path=path)
    return output.getvalue()


def test_ours_stand_beside_the_published(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    text = shown([Result(BASE.experiment, "what was sent", [BASE, GOOD], {})], path)
    assert "what was sent" in text
    (line,) = [each for each in text.splitlines() if "TTFT P50" in each and "-71" in each]
    assert "400 ms" in line
    assert "-78%" in line
    assert "an infinite cache" in text
    assert "1.4 points where each of 900 requests" in text  # sqrt(1/4 * 3/4 / 900)
    assert "Warning" not in text
    content = json.loads(path.read_text())
    assert content["rows"] == [BASE.as_json(), GOOD.as_json()]
    assert len(content["targets"]) == 5


def test_a_busy_machine_is_told() -> None:
    text = shown([Result(BASE.experiment, "", [BASE, replace(GOOD, cpu_busy=0.9)], {})])
    assert "over 85% busy with kv_aware:" in text


def test_what_is_out_of_reach_is_not_called_missed() -> None:
    base, row = replace(BASE, experiment=CHATS), replace(GOOD, experiment=CHATS)
    row = replace(row, floor_p90_s=0.8, ttft_p90_s=0.9, ttft_p50_s=0.4)
    lines = shown([Result(CHATS, "", [base, row], {})]).splitlines()
    assert any("P90 TTFT -37%" in line and "out of reach" in line for line in lines)
    assert any("P50 TTFT -16%" in line and "missed" in line for line in lines)


def test_without_random_there_is_nothing_to_judge() -> None:
    assert "Targets" not in shown([Result(GOOD.experiment, "", [GOOD], {})])
