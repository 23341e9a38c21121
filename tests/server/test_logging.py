"""What the process logs, and how."""

import json
import logging
import re
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from extproc.server.logging import configure
from extproc.settings import LogFormat, LogLevel


@pytest.fixture(autouse=True)
def _restore() -> Iterator[None]:
    handlers, level = logging.root.handlers[:], logging.root.level
    yield
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()
    logging.root.handlers[:] = handlers
    logging.root.setLevel(level)


def test_json_is_one_object_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    configure(LogLevel.INFO, LogFormat.JSON, worker=3)

    structlog.get_logger().info("serving", listen="127.0.0.1:9002", text="two\nlines")

    entry = json.loads(capsys.readouterr().err)
    assert entry.pop("timestamp")
    assert entry == {
        "event": "serving",
        "level": "info",
        "listen": "127.0.0.1:9002",
        "text": "two\nlines",
        "worker": 3,
    }


def test_console_is_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    configure(LogLevel.INFO, LogFormat.CONSOLE)

    structlog.get_logger().info("serving", listen="127.0.0.1:9002")

    line = capsys.readouterr().err
    assert "serving" in line
    assert "listen=127.0.0.1:9002" in line
    assert "\x1b" not in line


def test_lower_levels_are_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    configure(LogLevel.WARNING, LogFormat.JSON)

    structlog.get_logger().info("quiet")
    structlog.get_logger().warning("loud")

    assert [json.loads(line)["event"] for line in capsys.readouterr().err.splitlines()] == ["loud"]


def test_warnings_of_libraries_look_alike(capsys: pytest.CaptureFixture[str]) -> None:
    configure(LogLevel.DEBUG, LogFormat.JSON)

    logging.getLogger("library").info("chatter")
    logging.getLogger("library").warning("trouble %d", 7)

    (line,) = capsys.readouterr().err.splitlines()
    entry = json.loads(line)
    assert (entry["event"], entry["level"]) == ("trouble 7", "warning")


@pytest.mark.parametrize("log_format", list(LogFormat))
@pytest.mark.parametrize("logger", [structlog.get_logger(), logging.getLogger("library")])
def test_an_exception_shows_its_type_and_place_but_no_values(
    logger: Any, log_format: LogFormat, capsys: pytest.CaptureFixture[str]
) -> None:
    configure(LogLevel.INFO, log_format)
    prompt = "hunter" + "2"
    try:
        raise ValueError(prompt)
    except ValueError:
        logger.exception("trouble")

    text = capsys.readouterr().err
    assert "trouble" in text
    assert "ValueError" in text
    assert re.search(r"test_logging\.py:\d+ test_an_exception", text)
    assert "hunter2" not in text
    assert len(text.splitlines()) == 1
