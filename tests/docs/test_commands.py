"""Commands that the pages tell to run are ones that there are."""

import re
import shlex

import pytest
import typer
from typer.core import TyperGroup
from typer.exceptions import TyperException

from extproc import cli
from tests.docs.pages import ROOT, Page, calls, pages

_TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
_LEFT_OUT = re.compile(r"Missing (argument|option|parameter)|.*requires an argument")


def fault(call: str) -> str:
    """What is wrong with a call; empty if nothing is."""
    program, *words = shlex.split(call)
    if program == "make":
        return make_fault(words)
    command = typer.main.get_command(cli.app)
    parent = None
    while isinstance(command, TyperGroup) and words:
        parent = command.make_context(program, [], parent=parent, resilient_parsing=True)
        name = words[0]
        if name.startswith("-"):
            break
        found = command.get_command(parent, name)
        if found is None:
            return f"no command {name!r}"
        command, program, words = found, name, words[1:]
    if isinstance(command, TyperGroup):
        return "" if words in ([], ["--help"]) else f"no option {words[0]!r}"
    try:
        command.make_context(program, words, parent=parent)
    except typer.Exit:
        return ""
    except TyperException as error:
        return str(error)
    return ""


def make_fault(words: list[str]) -> str:
    for word in words:
        name, equals, value = word.partition("=")
        if not equals and name not in _TARGETS:
            return f"no target {name!r}"
        for path in re.findall(r"\btests/[\w./]+", value):
            if not (ROOT / path).exists():
                return f"no file {path!r}"
    return ""


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_commands(page: Page) -> None:
    assert [f"{call}: {why}" for call in page.commands() if (why := fault(call.text))] == []


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_mentions_of_commands(page: Page) -> None:
    found = [
        f"{call}: {why}"
        for call in page.mentions()
        if (why := fault(call.text)) and not _LEFT_OUT.match(why)
    ]
    assert found == []


@pytest.mark.parametrize(
    ("call", "why"),
    [
        ("make demo ARGS=--seed=2", ""),
        ("make demmo", "no target 'demmo'"),
        ("make test ARGS=tests/nowhere.py", "no file 'tests/nowhere.py'"),
        ("prefix-extproc lab load --rate 3", ""),
        ("prefix-extproc lab lod", "no command 'lod'"),
        ("prefix-extproc serve --stor memory://", "No such option: --stor"),
        (
            "prefix-extproc init envoy.yaml --mode shaddow",
            "Value error, 'shaddow' is not one of 'enforce', 'shadow'",
        ),
        ("prefix-extproc --loud", "no option '--loud'"),
    ],
)
def test_a_wrong_call_is_found(call: str, why: str) -> None:
    assert fault(call).startswith(why) if why else fault(call) == ""


def test_calls_in_a_line() -> None:
    line = "$ A=1 .venv/bin/prefix-extproc check - < x | cat && make test  # all of make lint"

    assert list(calls(line)) == ["prefix-extproc check -", "make test"]
    assert list(calls("it's prose that says: make test")) == []
