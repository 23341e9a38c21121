"""The commands ``check`` and ``init``."""

import difflib
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from extproc.address import split_host_port
from extproc.check.checking import Checked, check, mend
from extproc.check.findings import RULES, Finding, Severity
from extproc.check.installing import InstallError, install
from extproc.check.nodes import UnreadableError
from extproc.routing import Mode

DEFAULT_ROUTER = "127.0.0.1:9002"

app = typer.Typer(rich_markup_mode=None)

_COLOURS = {Severity.ERROR: typer.colors.RED, Severity.WARNING: typer.colors.YELLOW}


@app.callback()
def _group() -> None:
    """Makes a group, also of one command."""


@app.command(name="check")
def _check(
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FILE…",
            help="Envoy's YAML or JSON (a bootstrap, LDS, RDS or CDS files, fragments, a "
            "config dump) and Kubernetes manifests; `-` is standard input. All files are read as "
            "one configuration.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
    fix_print: Annotated[
        bool,
        typer.Option("--fix-print", help="Print the corrections as a diff; no file is changed."),
    ] = False,
    rules: Annotated[
        bool, typer.Option("--rules", help="Print all rules as a Markdown table.")
    ] = False,
) -> None:
    """Name what is wrong in an Envoy configuration: where, why, and the cure.

    Ends with status 0 if nothing was found, 1 if something was, 2 if a file cannot be read.
    """
    if rules:
        typer.echo(rules_markdown(), nl=False)
        return
    if not files:
        raise _unreadable("no file given: prefix-extproc check envoy.yaml")
    texts = {path: text_of(path) for path in files}
    try:
        checked = check(texts)
    except UnreadableError as error:
        raise _unreadable(str(error)) from None
    if as_json:
        found = [finding.as_dict() for finding in checked.findings]
        typer.echo(json.dumps({"filters": checked.filters, "findings": found}, indent=2))
    elif fix_print:
        _print_fixes(texts, checked)
    else:
        _print(checked)
    raise typer.Exit(1 if checked.findings else 0)


@app.command(name="init")
def _init(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE…",
            help="Envoy's YAML or JSON: a bootstrap, or the files with listeners, routes and "
            "clusters.",
        ),
    ],
    cluster: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="The cluster of the model servers; needed if there are several."
        ),
    ] = "",
    router: Annotated[
        list[str] | None,
        typer.Option(metavar="HOST:PORT", help="A router's address; may be given several times."),
    ] = None,
    mode: Annotated[
        Mode, typer.Option(help="`shadow` decides and counts, but leaves the choice to Envoy.")
    ] = Mode.ENFORCE,
    write: Annotated[
        bool, typer.Option("--write", help="Change the files instead of printing the diff only.")
    ] = False,
) -> None:
    """Put the router's filter and cluster into an Envoy configuration, and show the diff.

    Comments and order stay. Routes to other clusters are kept from the router. A second run changes
    nothing.
    """
    texts = {path: text_of(path) for path in files}
    try:
        routers = [split_host_port(address) for address in router or [DEFAULT_ROUTER]]
    except ValueError as error:
        raise _unreadable(f"--router: {error}") from None
    try:
        changed = install(texts, replicas=cluster, routers=routers, mode=mode.value)
    except (UnreadableError, InstallError) as error:
        raise _unreadable(str(error)) from None
    typer.echo(diff(texts, changed), nl=False)
    changes = [path for path in texts if texts[path] != changed[path]]
    if write:
        for path in changes:
            _write(Path(path), changed[path])
    _say_what_was_done(changes, written=write)
    _print_left(changed)


def _write(path: Path, text: str) -> None:
    """Replace a file's text, with the line ends that it has."""
    newline = "\r\n" if b"\r\n" in path.read_bytes() else "\n"
    path.write_text(text, encoding="utf-8", newline=newline)


def _say_what_was_done(changes: list[str], *, written: bool) -> None:
    if not changes:
        typer.echo("nothing to change: the router is in it", err=True)
    elif written:
        typer.echo(f"written: {', '.join(changes)}", err=True)
    else:
        typer.echo("no file was changed: --write does it", err=True)


def text_of(path: str) -> str:
    """A file's text; ends the program if it cannot be read."""
    try:
        return sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise _unreadable(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise _unreadable(f"{path}: no UTF-8 text") from None


def diff(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    """What changed, as ``patch`` reads it."""
    lines: list[str] = []
    for path, text in before.items():
        lines += difflib.unified_diff(
            _lines(text), _lines(after[path]), fromfile=path, tofile=path, n=3
        )
    return "".join(lines)


def rules_markdown() -> str:
    """The table of docs/check.md."""
    lines = ["| rule | severity | why it matters | cure |", "|---|---|---|---|"]
    for each in RULES.values():
        cure = each.cure.replace("|", "\\|")
        lines.append(f"| `{each.name}` | {each.severity} | {each.why} | {cure} |")
    return "\n".join(lines) + "\n"


def _print(checked: Checked) -> None:
    for finding in checked.findings:
        _print_one(finding)
    errors = sum(finding.severity is Severity.ERROR for finding in checked.findings)
    warnings = len(checked.findings) - errors
    if checked.findings:
        fixable = sum(bool(finding.edits) for finding in checked.findings)
        typer.echo(
            f"{_count(errors, 'error')}, {_count(warnings, 'warning')}; "
            f"{fixable} can be mended: --fix-print shows how"
        )
    elif checked.filters:
        typer.echo(f"nothing found; {_count(checked.filters, 'ext_proc filter')} checked")
    else:
        typer.echo(
            "nothing found; there is no ext_proc filter in it: `prefix-extproc init` adds one"
        )


def _print_one(finding: Finding) -> None:
    severity = typer.style(finding.severity, fg=_COLOURS[finding.severity], bold=True)
    place = typer.style(f"{finding.file}:{finding.line}:{finding.column}:", bold=True)
    typer.echo(f"{place} {severity}: {finding.message} [{finding.rule}]")
    typer.echo(f"    why:  {finding.why}")
    typer.echo(f"    cure: {finding.cure}\n")


def _print_fixes(texts: Mapping[str, str], checked: Checked) -> None:
    mended = mend(texts) if checked.findings else texts
    typer.echo(diff(texts, mended), nl=False)
    _print_left(mended)


def _print_left(texts: Mapping[str, str]) -> None:
    for finding in check(texts).findings:
        place = f"{finding.file}:{finding.line}:{finding.column}"
        typer.echo(
            f"left to you, {place} (lines as corrected): {finding.message} [{finding.rule}]\n"
            f"    cure: {finding.cure}",
            err=True,
        )


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}{'' if number == 1 else 's'}"


def _lines(text: str) -> list[str]:
    """Lines for a diff; the last one ends too."""
    lines = text.splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    return lines


def _unreadable(message: str) -> typer.Exit:
    typer.echo(f"error: {message}", err=True)
    return typer.Exit(2)
