"""The hash of all decisions: stable, and sensitive to what is decided."""

import re

import pytest
from typer.testing import CliRunner

from extproc.affinity import ledger
from extproc.lab.cli import app
from extproc.lab.decisions.replay import replay


def test_the_same_requests_give_the_same_hash() -> None:
    first, again = replay(600, seed=3), replay(600, seed=3)
    assert first == again
    assert first.requests == 600
    assert not first.faults
    assert {"matched", "spilled", "cold", "baseline", "no_prompt", "observing", "shed"} <= set(
        first.reasons
    )
    assert replay(600, seed=4).digest != first.digest


def test_another_way_to_decide_gives_another_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    before = replay(600)
    monkeypatch.setattr(ledger.Account, "pending_at", lambda *_: 0)
    assert replay(600).digest != before.digest


def test_the_command_prints_the_hash() -> None:
    result = CliRunner().invoke(app, ["bench", "decisions", "--requests", "50"])
    assert result.exit_code == 0, result.output
    assert re.search(r"50 requests, 0 faults, replies [0-9a-f]{32}\n", result.output)
