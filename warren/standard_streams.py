"""The standard streams of a command that was started with one of them closed, as by `>&-`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

MODES = {"stdin": "r", "stdout": "w", "stderr": "w"}


def open_missing() -> None:
    """Open the null device for each standard stream that is closed.

    Else Python has None in its place, and the next file or socket gets its number: it would take what others print.
    """
    while (number := os.open(os.devnull, os.O_RDWR)) < len(MODES):
        os.set_inheritable(number, True)
    os.close(number)
    for name, mode in MODES.items():
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115 - it stays open
