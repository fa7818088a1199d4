"""The standard streams of a command: one may be closed, as by `>&-`, or its encoding may lack characters."""

from __future__ import annotations

import io
import os
import select
import sys
from pathlib import Path

PIPE_CLOSED = 141  # exit status if the reader of the output has closed it (`| head`), as in shells
DISK_FULL = 74  # exit status if the output, or a file, could not be written; EX_IOERR in sysexits.h
MODES = {"stdin": "r", "stdout": "w", "stderr": "w"}


def prepare() -> None:
    """Open the streams that are closed, and let standard output write escapes, as standard error does.

    Python would raise UnicodeEncodeError in whatever happened to print a character that the encoding lacks (in a locale
    without UTF-8, or of a file's name in another encoding).
    """
    _open_missing()
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")


def output_closed() -> bool:
    """Return whether standard output is a pipe that its reader closed (`| head`); if so, drop what is still to come."""
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)  # no events asked for: a closed other end is reported anyway
    if not poll.poll(0):
        return False
    drop_output()
    return True


def drop_output() -> None:
    """Drop what is still to be printed: else the interpreter's exit reports again that it cannot be."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _open_missing() -> None:
    """Open the null device for each standard stream that is closed.

    Else Python has None in its place, and the next file or socket gets its number: it would take what others print.
    """
    while (number := os.open(os.devnull, os.O_RDWR)) < len(MODES):
        os.set_inheritable(number, True)
    os.close(number)
    for name, mode in MODES.items():
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115 - it stays open
