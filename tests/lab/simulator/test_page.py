"""The page for everybody, read by a parser."""

import re
from datetime import date
from html.parser import HTMLParser
from pathlib import Path

import pytest

from extproc.lab.simulator.charts import Chart, charts, write_charts
from extproc.lab.simulator.findings import Findings
from extproc.lab.simulator.page import page, write_page
from tests.lab.simulator.samples import findings, steady

RUNS = {
    "random": [steady(0.8, 200), steady(0.8, 200)],
    "kv_aware": [steady(0.2, 700), steady(0.2, 700)],
    "cache_aware": [steady(0.3, 650), steady(0.3, 650)],
    "oracle": [steady(0.19, 800), steady(0.19, 800)],
}
VOID = {"meta", "br"}


class Page(HTMLParser):
    """Reads a page; complains where elements do not close."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.fixture(scope="module")
def found() -> Findings:
    return findings(RUNS, settings={"decode-weight": "100"}, routers=2)


@pytest.fixture(scope="module")
def drawn(found: Findings) -> list[Chart]:
    return charts(found)


@pytest.fixture(scope="module")
def text(found: Findings, drawn: list[Chart]) -> str:
    return page(found, drawn, date(2025, 3, 9))


def test_it_needs_nothing_beside_itself(text: str) -> None:
    read = Page(text)
    assert not {"link", "script", "img", "iframe", "object"} & {tag for tag, _ in read.elements}
    for _, attributes in read.elements:
        for name, value in attributes.items():
            if name in {"href", "src", "xlink:href"}:
                assert (value or "").startswith("#")
    assert not re.search(r"url\((?!#)|@import", text)


def test_it_tells_the_figures(found: Findings, text: str) -> None:
    said = " ".join(Page(text).text.split())
    assert "shortens the mean wait for the first token by 75% against random routing" in said
    for outcome in found.outcomes:
        assert outcome.row.strategy in said
        assert f"{outcome.row.hit_rate:.1%}" in said
    ranked = re.findall(
        r"(oracle|kv_aware|cache_aware|random) (?:sees all |SGLang )?\d+\.\d%", said
    )
    assert ranked == ["oracle", "kv_aware", "cache_aware", "random"]
    assert "one cache without end would give 90.0%" in said
    assert "2 routers, shared state" in said
    assert "Setting decode-weight 100" in said
    assert "1, 2; figures are their means" in said
    assert "2025-03-09" in said


def test_recorded_traffic_is_told_from_made_up(drawn: list[Chart], text: str) -> None:
    logged = findings(RUNS, source="log.jsonl", pool="llm", output_tokens=77)
    said = " ".join(Page(page(logged, drawn, date(2025, 3, 9))).text.split())
    assert "(recorded traffic) Pool llm" in said
    assert "77 tokens where the record does not tell" in said
    assert "(built-in workload) Requests" in " ".join(Page(text).text.split())


def test_names_and_commands_are_text_not_markup(text: str) -> None:
    assert "simulate chat --set 'a=<b>'" in Page(text).text
    assert "a <test> workload" in Page(text).text
    assert "<b>" not in text


def test_who_does_not_see_the_charts_is_told(text: str, drawn: list[Chart]) -> None:
    read = Page(text)
    labels = [each["aria-label"] for each in read.all("div") if each.get("role") == "img"]
    assert labels == [chart.text for chart in drawn]
    assert "kv_aware 200 ms" in drawn[0].text
    assert "kv_aware 70.0%" in drawn[1].text
    assert "kv_aware 50.0% to 50.0%" in drawn[2].text
    assert read.all("html") == [{"lang": "en"}]
    assert all(each.get("scope") for each in read.all("th"))


def test_dark_light_and_paper(text: str) -> None:
    assert "prefers-color-scheme: dark" in text
    assert "@media print" in text
    assert "currentColor" in text


def test_ids_are_unique_over_all_charts(text: str) -> None:
    ids = [attributes["id"] for _, attributes in Page(text).elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    used = set(re.findall(r'(?:href="|url\()#([\w-]+)', text))
    assert used <= set(ids)


def test_it_stays_small_however_many_requests(found: Findings, text: str) -> None:
    many = findings({name: [steady(0.5, 100, requests=20_000)] for name in RUNS})
    longer = page(many, charts(many), date(2025, 3, 9))
    assert len(longer) < 400_000
    assert len(text) < 400_000


def test_many_replicas_are_a_band() -> None:
    many = findings({"random": [steady(0.5, 100, requests=400, replicas=40)]}, replicas=40)
    load = charts(many)[2]
    assert "middle half" in load.caption
    assert load.svg().count("<path") < 100


def test_the_page_is_written(tmp_path: Path, found: Findings, drawn: list[Chart]) -> None:
    path = tmp_path / "made" / "report.html"
    write_page(path, found, drawn, date(2025, 3, 9))
    assert path.read_text(encoding="utf-8").startswith("<!doctype html>")


def test_charts_are_pngs(tmp_path: Path, drawn: list[Chart]) -> None:
    write_charts(tmp_path / "made", drawn)
    files = sorted((tmp_path / "made").iterdir())
    assert [file.name for file in files] == ["hit-rate.png", "load.png", "ttft.png"]
    assert all(file.read_bytes().startswith(b"\x89PNG") for file in files)
