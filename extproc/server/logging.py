"""Structured logs on standard error: JSON or console, never prompt text, keys or passwords."""

import logging
import sys
import traceback
from pathlib import Path

import structlog

from extproc.settings import LogFormat, LogLevel


def configure(level: LogLevel, log_format: LogFormat, **context: str | int) -> None:
    """Set up logging for the process.

    Args:
        level: Least level to log.
        log_format: JSON, one object a line, or for people.
        context: What every line says.
    """
    renderer: structlog.typing.Processor
    if log_format is LogFormat.JSON:
        renderer = structlog.processors.JSONRenderer()
    else:
        renderer = structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), pad_event_to=0)
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _name_exception,
    ]
    number = logging.getLevelNamesMapping()[level.upper()]
    structlog.configure(
        processors=[*shared, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )
    structlog.contextvars.clear_contextvars()
    structlog.contextvars.bind_contextvars(**context)
    _bridge_libraries(shared, renderer, max(number, logging.WARNING))


def places(fault: BaseException) -> list[str]:
    """The innermost places that an exception went through, as ``file:line function``."""
    frames = traceback.extract_tb(fault.__traceback__)[-6:]
    return [f"{Path(each.filename).name}:{each.lineno} {each.name}" for each in frames]


def _name_exception(
    _logger: object, _method: str, event: structlog.typing.EventDict
) -> structlog.typing.EventDict:
    """An exception by its type and places: its text and its variables may hold a client's."""
    fault = event.pop("exc_info", None)
    if isinstance(fault, tuple):
        fault = fault[1]
    elif fault and not isinstance(fault, BaseException):
        fault = sys.exception()
    if fault:
        event.update(error=type(fault).__name__, where=places(fault))
    return event


def _bridge_libraries(
    shared: list[structlog.typing.Processor], renderer: structlog.typing.Processor, number: int
) -> None:
    """Render what libraries log through the standard library alike, warnings and above."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(number)
