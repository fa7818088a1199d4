"""Fields of this process that each record of a JSON log holds, and the formatter that writes one object per line."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from types import TracebackType
from typing import Any

OF_RECORDS = ("player", "version", "match")  # a log call may give these by `extra=`
_fields: dict[str, Any] = {}


def tell(**fields: Any) -> None:
    """Give each later record these fields; cheap enough for every update, whatever the log's format is."""
    _fields.update(fields)


class JsonFormatter(logging.Formatter):
    """Writes a record as one JSON object on a line, with the fields that were told and those of the record itself."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, without its end."""
        told = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **_fields,
        }
        told |= {name: getattr(record, name) for name in OF_RECORDS if hasattr(record, name)}
        if record.exc_info:
            told["exception"] = self.formatException(record.exc_info)
        return json.dumps(told, default=str)


def log_uncaught() -> None:
    """Log exceptions that end this process as any record, so that a JSON log holds JSON alone."""
    before = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if issubclass(kind, KeyboardInterrupt):
            before(kind, error, trace)
        else:
            logging.getLogger("warren").critical("this process ends", exc_info=(kind, error, trace))

    sys.excepthook = hook


def as_text(log: str) -> str:
    """Return a log with its JSON lines as those of a text log: the message, and below it the traceback."""
    if '"message"' not in log:
        return log
    return "\n".join(_line(line) for line in log.splitlines())


def _line(line: str) -> str:
    if not line.startswith("{"):
        return line
    try:
        told = json.loads(line)
        text = f"{told['time']} {told['level']} {told['logger']}: {told['message']}"
    except (ValueError, KeyError, TypeError):
        return line
    return f"{text}\n{told['exception']}" if isinstance(told.get("exception"), str) else text
