import json
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from extproc.lab.cli import app

RUNNER = CliRunner()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--listen", "9101"], "HOST:PORT"),
        (["--listen", "127.0.0.1:9101", "--speed", "0"], "above 0"),
        (["--listen", "127.0.0.1:9101", "--profile", "abacus"], "abacus"),
    ],
)
def test_wrong_options_are_told(arguments: list[str], message: str) -> None:
    result = RUNNER.invoke(app, ["lab", "replica", *arguments])
    assert result.exit_code == 2
    assert message in result.output


def test_a_short_demo(tmp_path: Path) -> None:
    arguments = ["demo", "--output", str(tmp_path / "out"), "--json", str(tmp_path / "rows.json")]
    arguments += ["--replicas", "2", "--requests", "16", "--rate", "20", "--seed", "5"]
    result = RUNNER.invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert "KV cache hit rate" in result.output
    content = json.loads((tmp_path / "rows.json").read_text())
    assert content["seed"] == 5
    rows = {row["strategy"]: row for row in content["rows"]}
    assert rows.keys() == {"random", "prefix_aware", "kv_aware"}
    assert all((row["requests"], row["failed"]) == (16, 0) for row in rows.values())
    assert (tmp_path / "out" / "chart.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "out" / "logs" / "envoy.log").exists()


def test_a_demo_that_cannot_start_shows_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("extproc.lab.stack.ROUTER_COMMAND", ["-c", "raise SystemExit('no bread')"])
    result = RUNNER.invoke(app, ["demo", "--output", str(tmp_path)])
    assert result.exit_code == 1
    assert "error: router-0 ended with status 1" in result.output
    assert "no bread" in result.output


def test_a_demo_that_is_told_to_end_stops_its_parts(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "extproc.lab.cli", "demo", "--output", str(tmp_path)]
    command += ["--replicas", "1", "--routers", "1", "--requests", "10000"]
    demo = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        log = tmp_path / "logs" / "envoy.log"
        while not log.exists():
            assert demo.poll() is None
            time.sleep(0.05)
        demo.terminate()
        assert demo.wait(timeout=30) == 1
    finally:
        demo.kill()
        demo.wait()
    config = json.loads((tmp_path / "logs" / "envoy.json").read_text())
    for cluster in config["staticResources"]["clusters"]:
        for endpoint in cluster["loadAssignment"]["endpoints"][0]["lbEndpoints"]:
            port = endpoint["endpoint"]["address"]["socketAddress"]["portValue"]
            with socket.socket() as probe:
                assert probe.connect_ex(("127.0.0.1", port)) != 0
