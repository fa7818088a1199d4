"""Where a launcher shows how things stand: a live panel in a terminal, lines that stay anywhere else."""

from __future__ import annotations

import sys
from typing import Self, TextIO

from rich.console import Console
from rich.live import Live

REFRESH = 4  # panels a second


class Terminal:
    """`_live` takes what is to be shown while the block lasts, None where there is no terminal; `say` prints a line."""

    def __init__(self, stream: TextIO = sys.stdout) -> None:
        self._console = Console(file=stream, highlight=False, soft_wrap=True)
        self._live: Live | None = None

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live = Live(console=self._console, refresh_per_second=REFRESH, transient=True)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def say(self, text: str) -> None:
        """Print lines above what is shown."""
        self._console.print(text, markup=False)
        if self._console.file is not sys.stdout or not self._console.is_terminal:
            self._console.file.flush()
