"""The end of a forked process, which leaves alone what was imported before the fork."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import sys
from typing import Any, NoReturn


def leave(code: Any) -> NoReturn:
    """Raise SystemExit(code). At the top, the interpreter ends as usual, but destroys no module.

    That would write to most of the memory that the process shares with the one that forked it, and so copy it: 0.3 s of
    work with torch, in all processes of a run at once.
    """
    if code is None or isinstance(code, int):
        atexit.register(_end, (code or 0) & 0xFF)
    sys.exit(code)


def _end(status: int) -> None:
    """End this process after the functions of atexit, of which this is the first to run; threads have ended."""
    atexit.unregister(_end)
    atexit._run_exitfuncs()
    with contextlib.suppress(OSError, ValueError):  # the interpreter goes on, and tells that it cannot write
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        ctypes.CDLL(None).fflush(None)
        os._exit(status)
