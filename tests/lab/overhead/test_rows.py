import csv
import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from extproc.lab.overhead import report
from extproc.lab.overhead.cases import REPEATED, UNIQUE, Case
from extproc.lab.overhead.measure import Measured, Sample
from extproc.lab.overhead.rows import OverheadRow, Spread, pool
from extproc.lab.overhead.stack import ALONE, FLOOR, VALKEY

CASE, OTHER = Case(2, UNIQUE, 1), Case(64, REPEATED, 32)


def sample(way: str, case: Case = CASE, *, p50_s: float = 0.001, router_s: float = 0.0) -> Sample:
    return Sample(
        case=case,
        way=way,
        requests=100,
        wall_s=0.5,
        p50_s=p50_s,
        p90_s=2 * p50_s,
        p99_s=3 * p50_s,
        router_s=router_s,
        envoy_s=0.01,
        store_s=0.003 if way == VALKEY else 0.0,
        memory_bytes=50_000_000 if router_s else 0,
    )


SAMPLES = [
    # Each round begins with another way.
    sample(VALKEY, p50_s=0.004, router_s=0.06),
    sample(ALONE, p50_s=0.001),
    sample(FLOOR, p50_s=0.002, router_s=0.03),
    sample(FLOOR, p50_s=0.003, router_s=0.05),
    sample(VALKEY, p50_s=0.005, router_s=0.05),
    sample(ALONE, p50_s=0.002),
    sample(ALONE, p50_s=0.001),
    sample(FLOOR, p50_s=0.002, router_s=0.02),
    sample(VALKEY, p50_s=0.003, router_s=0.04),
    sample(ALONE, OTHER),
    sample(FLOOR, OTHER, p50_s=0.002, router_s=0.02),
    sample(VALKEY, OTHER, p50_s=0.003, router_s=0.04),
]
MEASURED = Measured(SAMPLES, own_share=0.4, busy_share=0.5)


@pytest.fixture(name="rows")
def _rows() -> list[OverheadRow]:
    return pool(SAMPLES)


def test_rows_come_case_by_case_with_envoy_alone_and_the_floor_first(
    rows: list[OverheadRow],
) -> None:
    assert [(row.case, row.way) for row in rows] == [
        (case, way) for case in (CASE, OTHER) for way in (ALONE, FLOOR, VALKEY)
    ]


def test_what_a_way_adds_is_compared_within_each_round(rows: list[OverheadRow]) -> None:
    row = rows[2]
    assert row.rounds == 3
    assert row.added_p50_ms == pytest.approx((3.0, 2.0, 3.0))
    assert row.added_p90_ms == pytest.approx((6.0, 4.0, 6.0))
    assert row.added_p99_ms == pytest.approx((9.0, 6.0, 9.0))
    assert row.to_floor == pytest.approx((2.0, 1.0, 2.0))


def test_processor_time_is_per_request(rows: list[OverheadRow]) -> None:
    row = rows[2]
    assert row.router_us == pytest.approx((500.0, 400.0, 600.0))
    assert row.envoy_us.median == pytest.approx(100.0)
    assert row.store_us.median == pytest.approx(30.0)
    assert row.requests_per_core == pytest.approx(2000.0)
    assert row.requests_per_s.median == pytest.approx(200.0)
    assert row.memory_mb.median == pytest.approx(50.0)


def test_envoy_alone_adds_nothing_and_has_no_router(rows: list[OverheadRow]) -> None:
    alone = rows[0]
    assert alone.added_p50_ms == Spread(0.0, 0.0, 0.0)
    assert alone.router_us.high == 0.0
    assert alone.requests_per_core == 0.0


def test_the_results_are_written_alike(rows: list[OverheadRow], tmp_path: Path) -> None:
    content = report.as_document("prefix-extproc bench overhead", 1, rows, MEASURED)
    json_path, csv_path, chart = report.write_all(tmp_path / "new", content, rows)
    written = json.loads(json_path.read_text())
    assert written["machine"]["busy_share"] == 0.5
    with csv_path.open() as file:
        lines = list(csv.DictReader(file))
    for row, line in zip(written["rows"], lines, strict=True):
        assert {name: str(value) for name, value in row.items()} == line
    last = written["rows"][2]
    assert last["strategy"] == VALKEY
    assert last["size_kb"] == 2
    assert (last["router_us"], last["router_us_low"], last["router_us_high"]) == pytest.approx(
        (500.0, 400.0, 600.0)
    )
    assert chart.read_bytes().startswith(b"\x89PNG")


def shown(measured: Measured) -> str:
    console = Console(file=io.StringIO(), width=170)
    rows = pool(measured.samples)
    console.print(report.table(rows))
    for line in report.notes(rows, measured):
        console.print(line)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_table_has_medians_with_the_least_and_the_most() -> None:
    text = shown(MEASURED)
    assert "3.00 [2.00-3.00]" in text
    assert "500 [400-600]" in text
    assert "2,000" in text
    assert "Warning" not in text


def test_other_work_on_the_machine_is_warned_of() -> None:
    assert "Warning" in shown(Measured(SAMPLES, own_share=0.4, busy_share=0.9))
