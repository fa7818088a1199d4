"""Exceptions that nothing catches: some end a process without a traceback."""

from __future__ import annotations

import sys
from types import TracebackType


def shorten(*kinds: type[BaseException]) -> None:
    """Let uncaught exceptions of `kinds` end this process without a traceback.

    An error prints its message. Ctrl-C prints nothing: until a command handles it, as while modules are imported.
    """
    before = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if not issubclass(kind, kinds):
            before(kind, error, trace)
        elif not issubclass(kind, KeyboardInterrupt):
            for line in str(error).splitlines():
                print(f"error: {line}", file=sys.stderr)

    sys.excepthook = hook
