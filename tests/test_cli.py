"""The command line, as a user meets it."""

import logging
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest
import structlog
from typer.testing import CliRunner, Result

from extproc import __version__, cli
from extproc.settings import Settings, markdown, plain


@pytest.fixture(autouse=True)
def _logging() -> Iterator[None]:
    """Undo what ``serve`` sets up for its process."""
    handlers, level = logging.root.handlers[:], logging.root.level
    yield
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()
    logging.root.handlers[:] = handlers
    logging.root.setLevel(level)


def run(*arguments: str, **environment: str) -> Result:
    return CliRunner().invoke(cli.app, list(arguments), env=environment)


def printed(*arguments: str) -> str:
    result = run(*arguments)
    assert result.exit_code == 0
    return result.output


def test_help_names_every_command() -> None:
    text = printed("--help")

    for command in ("serve", "settings", "version", "demo", "lab"):
        assert f"  {command} " in text


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; from extproc.cli import app; from typer.testing import CliRunner;"
        "CliRunner().invoke(app, ['--help']);"
        "print(sorted({'grpc', 'aiohttp', 'pydantic', 'redis', 'matplotlib'} & set(sys.modules)))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert result.stdout == "[]\n"


def test_serve_has_a_flag_for_every_setting() -> None:
    text = printed("serve", "--help")

    for name in Settings.model_fields:
        assert f"  --{name.replace('_', '-')} VALUE" in text


def test_version() -> None:
    assert printed("version") == f"{__version__}\n"


def test_settings() -> None:
    assert printed("settings") == plain()
    assert printed("settings", "--markdown") == markdown()


def test_a_wrong_setting_is_one_line_and_code_2() -> None:
    result = run("serve", "--workers", "0")

    assert result.exit_code == 2
    assert result.stderr == ("error: --workers '0': Input should be greater than or equal to 1\n")


def test_a_wrong_variable_is_one_line_and_code_2() -> None:
    result = run("serve", PREFIX_EXTPROC_STORE="mysql://root:secret@db")

    assert result.exit_code == 2
    assert result.stderr.startswith("error: PREFIX_EXTPROC_STORE: ")
    assert len(result.stderr.splitlines()) == 1
    assert "secret" not in result.stderr


@pytest.mark.parametrize("flag", ["--listen", "--admin"])
def test_a_port_in_use_is_one_line_and_code_1(flag: str) -> None:
    flags = {"--listen": "127.0.0.1:0", "--admin": "127.0.0.1:0"}
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        flags[flag] = f"127.0.0.1:{taken.getsockname()[1]}"

        result = run(
            "serve", *(part for pair in flags.items() for part in pair), "--log-level=error"
        )

    assert result.exit_code == 1
    assert result.stderr.startswith("error: cannot ")
    assert flag in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_a_port_in_use_with_workers() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        listen = f"127.0.0.1:{taken.getsockname()[1]}"

        result = run("serve", "--listen", listen, "--workers", "2", "--admin", "")

    assert result.exit_code == 1
    assert result.stderr.startswith(f"error: cannot listen on {listen}: address already in use")


def test_a_misspelt_variable_is_warned_of() -> None:
    result = run("serve", "--listen", "unix:/nowhere/s", PREFIX_EXTPROC_LISTN="x")

    assert result.stderr.splitlines()[0] == (
        "warning: PREFIX_EXTPROC_LISTN in the environment is no setting: "
        "did you mean PREFIX_EXTPROC_LISTEN?"
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_serve_ends_in_peace_on_a_signal(number: signal.Signals) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "extproc", "serve", "--listen=127.0.0.1:0", "--admin=127.0.0.1:0"],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    with process:
        for line in process.stderr:
            if " serving " in line:
                process.send_signal(number)
        assert process.wait(timeout=60) == 0


def test_a_missing_lab_extra_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing() -> None:
        raise ModuleNotFoundError("No module named 'matplotlib'", name="matplotlib")

    monkeypatch.setattr(cli, "app", missing)
    with pytest.raises(SystemExit) as end:
        cli.main()

    assert end.value.code == 1
    assert capsys.readouterr().err == (
        "error: matplotlib is not installed: pip install 'prefix-extproc[lab]'\n"
    )


def test_any_other_missing_module_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise ModuleNotFoundError("No module named 'extproc.oops'", name="extproc.oops")

    monkeypatch.setattr(cli, "app", missing)
    with pytest.raises(ModuleNotFoundError):
        cli.main()
