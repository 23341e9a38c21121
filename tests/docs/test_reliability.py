"""The table of drills names each drill there is, and its outcomes are what the drills allow."""

import inspect
import re
from importlib import import_module
from pathlib import Path

from tests.docs.pages import ROOT
from tests.faults.drills import HEAD

PAGE = (ROOT / "docs" / "reliability.md").read_text()


def between(mark: str) -> list[list[str]]:
    """Rows of the table between two marks, its head first."""
    found = re.search(rf"<!-- {mark}:begin -->\n(.*?)<!-- {mark}:end -->", PAGE, re.DOTALL)
    assert found is not None
    lines = [line.strip("| ").split(" | ") for line in found[1].splitlines() if line]
    return [line for line in lines if set("".join(line)) - {"-"}]


def drills() -> set[str]:
    """Names of all tests that drill."""
    names = set()
    for path in Path(ROOT, "tests", "faults").glob("test_*.py"):
        for name, test in vars(import_module(f"tests.faults.{path.stem}")).items():
            if name.startswith("test_") and "drill" in inspect.signature(test).parameters:
                names.add(name)
    return names


def test_each_drill_has_its_row() -> None:
    head, *rows = between("drills")
    assert head == HEAD
    assert {row[-1].strip("`").partition("[")[0] for row in rows} == drills()


def test_the_table_keeps_the_promise() -> None:
    _, *rows = between("drills")
    for fault, _, sent, failed, _, _, wrong, *_ in rows:
        assert int(wrong) == 0
        assert int(sent) > 0
        assert int(failed) == 0 or fault.startswith(("the only Envoy", "all replicas")), fault
