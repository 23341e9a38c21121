"""Dashboard and alerts ask for series that there are; every alert is in the runbook."""

import itertools
import json
import re
from collections.abc import Mapping
from typing import Any

import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard
from prometheus_client.parser import text_string_to_metric_families

from extproc.lab.replica.cache import BlockCache
from extproc.lab.replica.engine import Engine
from extproc.lab.replica.latency import DEFAULT_PROFILE, PROFILES
from extproc.lab.replica.metrics import ReplicaMetrics
from tests.compose.files import (
    DASHBOARD,
    ROOT,
    Expression,
    alerts,
    expressions,
    panels,
    read,
)
from tests.compose.promql import names
from tests.docs.pages import Page
from tests.server.test_metrics import documented

RUNBOOK = ROOT / "docs" / "runbook.md"

PROMETHEUS = {"job", "instance", "le"}
"""Labels that Prometheus adds, or that histograms have."""

ELSEWHERE = {
    "up": set[str](),
    "process_cpu_seconds_total": set[str](),
    "envoy_http_ext_proc_failure_mode_allowed": set[str](),
    "envoy_http_ext_proc_message_timeouts": set[str](),
    "envoy_http_ext_proc_streams_started": set[str](),
}
"""Of Prometheus, Python's client and Envoy, with labels; tests/containers sees them filled."""


def of_replicas() -> dict[str, set[str]]:
    """Series of a simulated replica, by their names in vLLM."""
    engine = Engine(PROFILES[DEFAULT_PROFILE], BlockCache(1024))
    metrics = ReplicaMetrics(engine, "m")
    metrics.observe_first_token(0.1)
    return {
        sample.name: set(sample.labels)
        for family in text_string_to_metric_families(metrics.render().decode())
        for sample in family.samples
    }


@pytest.fixture(scope="module")
def known() -> Mapping[str, set[str]]:
    """Series to labels."""
    found = {**ELSEWHERE, **of_replicas()}
    for name, (kind, labels) in documented().items():
        for suffix in ("_bucket", "_sum", "_count") if kind == "histogram" else ("",):
            found[name + suffix] = labels
    return found


@pytest.mark.parametrize("expression", list(expressions()), ids=lambda each: each.where)
def test_series_and_labels_are_known(expression: Expression, known: Mapping[str, set[str]]) -> None:
    metrics, labels = names(expression.text)

    assert metrics
    assert metrics <= set(known)
    assert labels <= PROMETHEUS.union(*(known[metric] for metric in metrics))


def test_every_panel_says_what_it_shows() -> None:
    ids = [panel["id"] for panel in panels()]
    assert len(set(ids)) == len(ids)
    for panel in panels():
        assert panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"]
        refs = [target["refId"] for target in panel["targets"]]
        assert len(set(refs)) == len(refs)


def test_no_panel_lies_on_another() -> None:
    for one, other in itertools.combinations([panel["gridPos"] for panel in panels()], 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        above = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert beside or above
        assert max(one["x"] + one["w"], other["x"] + other["w"]) <= 24


def test_the_dashboard_asks_the_source_that_is_provisioned() -> None:
    dashboard = json.loads(DASHBOARD.read_text())
    variables = {each["name"]: each for each in dashboard["templating"]["list"]}
    sources = read("grafana/provisioning/datasources/prometheus.yaml")["datasources"]

    assert {each["type"] for each in sources} == {variables["datasource"]["query"]}
    used = set(re.findall(r"\$\{?(\w+)", DASHBOARD.read_text())) - {"__rate_interval", "__all"}
    assert used == set(variables)


def test_grafana_knows_every_field_of_the_dashboard() -> None:
    register_default_plugins()
    shipped = json.loads(DASHBOARD.read_text())
    for variable in shipped["templating"]["list"]:
        variable.pop("definition", None)  # what Grafana's editor shows; not in the schema

    read_by_grafana = Dashboard.from_json(shipped)

    assert missing(shipped, json.loads(JSONEncoder().encode(read_by_grafana))) == []


def missing(written: Any, known: Any, path: str = "") -> list[str]:
    """Paths of what is in the first and not, or otherwise, in the second."""
    if isinstance(written, dict) and isinstance(known, dict):
        pairs = [(f"{path}.{key}", value, known.get(key)) for key, value in written.items()]
    elif isinstance(written, list) and isinstance(known, list) and len(written) == len(known):
        both = zip(written, known, strict=True)
        pairs = [(f"{path}[{index}]", *pair) for index, pair in enumerate(both)]
    else:
        return [] if written == known else [path]
    return [found for place, one, other in pairs for found in missing(one, other, place)]


def test_a_field_that_grafana_does_not_know_is_found() -> None:
    assert missing({"a": [{"b": 1, "c": 2}]}, {"a": [{"b": 1}]}) == [".a[0].c"]


def test_every_alert_has_a_section_of_the_runbook() -> None:
    headings = re.findall(r"^## (\w+)$", RUNBOOK.read_text(), re.MULTILINE)
    anchors = Page(RUNBOOK).anchors

    assert [rule["alert"] for rule in alerts()] == headings
    for rule in alerts():
        page, _, anchor = rule["annotations"]["runbook"].partition("#")
        assert ROOT / page == RUNBOOK
        assert anchor == rule["alert"].lower()
        assert anchor in anchors
        assert rule["labels"]["severity"] in {"info", "warning", "critical"}
        assert rule["annotations"]["summary"]


def test_labels_in_summaries_are_there() -> None:
    for rule in alerts():
        named = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
        grouped = names(rule["expr"]).labels | {"instance"}
        assert named <= grouped, rule["alert"]
