"""Logs on stderr: one JSON object a line, or readable lines for people.

The keys are `ts`, `level`, `msg`, and what the line is about: `incident`, `job`, `phase`, `decision`. Each line about a
group has `job`, and `incident` while one is open. A line about a quarantined node has `node`, and the incident and the
job that led to the quarantine. docs/monitoring.md lists the keys. Lines that libraries log through the standard library
have the same shape, so that a parser can read every line.
"""

import logging
import sys
from typing import TextIO

import structlog
from structlog.types import EventDict, Processor, WrappedLogger

_FIRST_KEYS = ("ts", "level", "msg", "incident", "job", "phase", "decision")

_LIBRARY_LEVEL = logging.WARNING
"""Below this level, libraries log only about themselves."""


def configure_logs(level: str, stream: TextIO | None = None, shown: str | None = None) -> None:
    """Set up logging for the whole process.

    `level`: debug, info, warning or error; lines below it are dropped. `stream` None: stderr as it is now.
    `shown`: console (for people) or json; None: console where the stream is a terminal, else json.
    """
    stream = sys.stderr if stream is None else stream
    shape: list[Processor] = [
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="ts"),
        structlog.processors.EventRenamer("msg"),
    ]
    if shown is None:
        shown = "console" if stream.isatty() else "json"
    render = _for_people(colors=stream.isatty()) if shown == "console" else _as_json()
    structlog.configure(
        processors=[*shape, *render],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.WriteLoggerFactory(stream),
    )
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.add_logger_name, *shape],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *render],
        )
    )
    logging.basicConfig(handlers=[handler], level=_LIBRARY_LEVEL, force=True)


def _as_json() -> list[Processor]:
    return [structlog.processors.format_exc_info, _ordered, structlog.processors.JSONRenderer(default=str)]


def _for_people(*, colors: bool) -> list[Processor]:
    # Plain tracebacks: the rich ones print local variables, and with them credentials.
    render = structlog.dev.ConsoleRenderer(
        colors=colors, event_key="msg", timestamp_key="ts", exception_formatter=structlog.dev.plain_traceback
    )
    return [render]


def _ordered(_logger: WrappedLogger, _method: str, line: EventDict) -> EventDict:
    return {key: line[key] for key in _FIRST_KEYS if key in line} | dict(line)
