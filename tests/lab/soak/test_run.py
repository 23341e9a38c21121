"""A short soak on the real stack: what it counts at its end, and what it keeps for scripts."""

import json
from collections import Counter
from pathlib import Path

import pytest
from rich.console import Console

from extproc.lab.soak.report import present, slope, summary
from extproc.lab.soak.run import Sample, Soaked, SoakOptions, run_soak


@pytest.mark.timeout(300)
async def test_nothing_is_left_and_no_request_fails(tmp_path: Path) -> None:
    options = SoakOptions(minutes=0.2, rate=20, aborted=0.2, every_s=4, ttl_s=3)
    soaked = await run_soak(options, lambda _: None)

    assert not soaked.failed
    assert soaked.answered + soaked.aborted == 240
    assert soaked.answered
    assert soaked.restarts
    assert soaked.reshapings
    assert set(soaked.left.values()) == {0}
    present(
        soaked,
        Console(quiet=True),
        command="bench soak",
        seed=1,
        png=tmp_path / "soak.png",
        json=tmp_path / "soak.json",
    )
    assert (tmp_path / "soak.png").stat().st_size > 1000
    assert json.loads((tmp_path / "soak.json").read_text())["rows"] == [summary(soaked)]


def samples(start: float, per_hour: float) -> list[Sample]:
    """An hour in minutes; the first ten of them fill caches."""
    return [
        Sample(60.0 * at, start + per_hour * at / 60 - 900 * max(10 - at, 0), at, 0, at, at, 0)
        for at in range(61)
    ]


def test_a_slope_is_what_grows_in_an_hour_after_warming_up() -> None:
    assert slope(samples(5000, 240), "rss_bytes") == pytest.approx(240)
    assert slope(samples(5000, 240)[:1], "rss_bytes") == 0
    found = summary(Soaked(samples(5000, 240), 50, 10, Counter(x=1), 0, 0, {"open streams": 1}))
    assert (found["requests"], found["failed"], found["keys_most"]) == (61, 1, 60)
    assert found["rss_bytes_per_abort"] == pytest.approx(4)
