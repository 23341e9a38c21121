"""What compose/ ships, read."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "compose"
DASHBOARD = FOLDER / "grafana" / "dashboards" / "prefix-extproc.json"

EMPTY_WHILE_WELL = "Empty while all is well."
"""How a panel says that no data is good news."""


class Expression(NamedTuple):
    """A query in PromQL, and where it is."""

    where: str
    text: str


def read(name: str) -> Any:
    """A YAML file."""
    return yaml.safe_load((FOLDER / name).read_text())


def services() -> dict[str, dict[str, Any]]:
    """Of compose.yaml, with merge keys resolved and variables as they stand."""
    found: dict[str, dict[str, Any]] = read("compose.yaml")["services"]
    return found


def default_of(text: str) -> str:
    """The value of ``${NAME:-value}`` where nobody sets the variable."""
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text)


def panels() -> list[dict[str, Any]]:
    """Of the dashboard."""
    found: list[dict[str, Any]] = json.loads(DASHBOARD.read_text())["panels"]
    return found


def alerts() -> list[dict[str, Any]]:
    """The alert rules."""
    return [rule for group in read("prometheus/alerts.yaml")["groups"] for rule in group["rules"]]


def expressions() -> Iterator[Expression]:
    """All that is asked of Prometheus."""
    for panel in panels():
        for target in panel["targets"]:
            yield Expression(panel["title"], target["expr"])
    for rule in alerts():
        yield Expression(rule["alert"], rule["expr"])
