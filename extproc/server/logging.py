"""Structured logs on standard error: JSON or console, never prompt text, keys or passwords."""

import logging
import sys

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
