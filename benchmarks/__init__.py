"""Measurements: `python -m benchmarks.NAME`. Ctrl-C and bad input end them with one line, without a traceback."""

from __future__ import annotations

import sys
from types import TracebackType

from warren.errors import WarrenError


def report(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
    """Print what ended the process, as `sys.excepthook`: one line, or a traceback where the cause may be a defect."""
    if issubclass(kind, KeyboardInterrupt):
        print("stopped", file=sys.stderr)
    elif issubclass(kind, WarrenError):
        for line in str(error).splitlines():
            print(f"error: {line}", file=sys.stderr)
    else:
        sys.__excepthook__(kind, error, traceback)


sys.excepthook = report
