"""The command line of ``check``."""

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from extproc import cli
from extproc.check.command import rules_markdown
from extproc.check.findings import RULES
from tests.check.envoy import refusal
from tests.check.planted import FOLDER

ROOT = Path(__file__).parents[2]
STANDALONE = str(ROOT / "envoy" / "standalone.yaml")
PLANTED = str(FOLDER / "first_try.yaml")


def run(*arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(cli.app, ["check", *arguments], input=stdin)


def test_a_clean_file() -> None:
    result = run(STANDALONE)

    assert result.exit_code == 0
    assert result.output == "nothing found; 1 ext_proc filter checked\n"


def test_a_finding_has_its_place_why_and_cure() -> None:
    result = run(PLANTED)

    assert result.exit_code == 1
    assert (
        f"{PLANTED}:18:17: error: the route has Envoy's timeout of 15 s [route-timeout]\n"
        f"    why:  {RULES['route-timeout'].why}\n"
        f"    cure: {RULES['route-timeout'].cure}\n"
    ) in result.output
    assert re.search(r"^\d+ errors, \d+ warnings; \d+ can be mended", result.output, re.MULTILINE)


def test_json() -> None:
    result = run("--json", PLANTED)

    assert result.exit_code == 1
    report = json.loads(result.output)
    assert report["filters"] == 1
    assert report["findings"][1] == {
        "rule": "route-timeout",
        "severity": "error",
        "file": PLANTED,
        "line": 18,
        "column": 17,
        "message": "the route has Envoy's timeout of 15 s",
        "why": RULES["route-timeout"].why,
        "cure": RULES["route-timeout"].cure,
        "fixable": True,
    }


def patched(text: str, diff: str) -> str:
    """The text after a unified diff, which has to fit it exactly."""
    old, new, place = text.splitlines(), [], 0
    for line in diff.splitlines()[2:]:
        if line.startswith("@@"):
            start = int(line.split()[1].removeprefix("-").split(",")[0]) - 1
            new += old[place:start]
            place = start
        elif line.startswith("+"):
            new.append(line[1:])
        else:
            assert old[place] == line[1:]
            new += [] if line.startswith("-") else [line[1:]]
            place += 1
    return "\n".join([*new, *old[place:]]) + "\n"


def test_the_printed_diff_is_a_patch(tmp_path: Path) -> None:
    path = tmp_path / "envoy.yaml"
    path.write_text(Path(PLANTED).read_text())

    result = run("--fix-print", str(path))

    assert result.exit_code == 1
    assert path.read_text() == Path(PLANTED).read_text(), "check changes no file"
    assert "left to you" in result.stderr
    path.write_text(patched(path.read_text(), result.stdout))
    assert refusal(path) == ""
    assert {
        finding["rule"] for finding in json.loads(run("--json", str(path)).stdout)["findings"]
    } == {
        "bad-setting",
        "client-controlled-setting",
        "setting-twice",
    }


def test_standard_input() -> None:
    text = Path(PLANTED).read_text()

    assert "-:18:17: error" in run("-", stdin=text).output


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a: [1", "f.yaml:2:1: no YAML or JSON"),
        ('{"a": }}', "f.yaml:1:8: no YAML or JSON"),
        ("a: \xff".encode("latin-1"), "f.yaml: no UTF-8 text"),
        (None, "f.yaml: No such file or directory"),
    ],
)
def test_what_cannot_be_read_is_status_2(
    text: str | bytes | None, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if text is not None:
        Path("f.yaml").write_bytes(text.encode() if isinstance(text, str) else text)

    result = run("f.yaml")

    assert result.exit_code == 2
    assert result.stderr.startswith(f"error: {reason}")


def test_no_file_is_status_2() -> None:
    assert run().exit_code == 2


def test_a_file_without_a_filter_says_so(tmp_path: Path) -> None:
    path = tmp_path / "f.yaml"
    path.write_text("# nothing\n")

    result = run(str(path))

    assert result.exit_code == 0
    assert "there is no ext_proc filter in it" in result.output


def test_the_table_of_rules_is_in_the_docs() -> None:
    assert run("--rules").output == rules_markdown()
    assert rules_markdown() in (ROOT / "docs" / "check.md").read_text()
