"""The output of a launcher: a live panel in a terminal, lines that stay anywhere else."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import termios
from collections.abc import Sequence
from typing import Any, Self, TextIO

from rich.console import Console
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

REFRESH = 4  # panels per second
LOCAL_FLAGS = 3  # their index among a terminal's attributes


class Terminal:
    """A terminal, as a context manager. `_live` shows a panel (None without a terminal); `say` prints a line."""

    def __init__(self, stream: TextIO = sys.stdout) -> None:
        self._console = Console(file=stream, highlight=False, soft_wrap=True)
        self._live: Live | None = None
        self._echo = _Echo()

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._echo.off()
            self._live = Live(console=self._console, refresh_per_second=REFRESH, transient=True)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove the panel and restore the terminal. Idempotent."""
        live, self._live = self._live, None
        try:
            if live is not None:
                live.stop()
        finally:
            self._echo.restore()

    def framed(self, title: str, *parts: Table, notes: Sequence[str]) -> Panel:
        """Return a panel of `parts`, one below the other, and `notes` in yellow."""
        outer = Table.grid()
        for part in parts:
            outer.add_row(part)
        for note in notes:
            outer.add_row(Text(note, "yellow"))
        return Panel(outer, title=title, title_align="left", expand=False)

    def say(self, text: str) -> None:
        """Print lines above the panel; while the output's disk is full, keep them until they can be written."""
        try:
            self._console.print(text, markup=False)
            if self._console.file is not sys.stdout or not self._console.is_terminal:
                self._console.file.flush()
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise


class _Echo:
    """The echo of a terminal, switched off while there is a panel.

    A terminal prints ^C at the cursor, in the panel's last line, and a border would stay behind.
    """

    def __init__(self) -> None:
        self._before: list[Any] | None = None

    def off(self) -> None:
        with contextlib.suppress(termios.error, ValueError, OSError):  # standard input is not a terminal
            if not _in_foreground():  # `... &`: the system stops a background process that changes the terminal
                return
            attributes = termios.tcgetattr(sys.stdin)
            self._before = [*attributes]
            attributes[LOCAL_FLAGS] &= ~termios.ECHOCTL & ~termios.ECHO
            termios.tcsetattr(sys.stdin, termios.TCSANOW, attributes)

    def restore(self) -> None:
        before, self._before = self._before, None
        if before is not None:
            with contextlib.suppress(termios.error, ValueError, OSError):
                if _in_foreground():
                    termios.tcsetattr(sys.stdin, termios.TCSANOW, before)


def _in_foreground() -> bool:
    """Return whether this process may change the terminal at standard input. Raises OSError without one."""
    return os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
