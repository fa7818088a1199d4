"""How a launcher is told to stop: the first signal asks, the second ends it and its children at once."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterable
from typing import Any

from workers.servers.process import Child

KILLED = 130  # exit status after Ctrl-C, as shells have it


class Interrupts:
    """Ctrl-C and SIGTERM: the first asks for a clean stop, the second kills every child and ends the process.

    `restore`: puts the terminal back as it was, ahead of such an end.
    """

    def __init__(self, restore: Callable[[], None] | None = None) -> None:
        self.asked = False
        self._restore = restore
        self._children: list[Callable[[], Iterable[Child]]] = []

    def install(self, *children: Callable[[], Iterable[Child]]) -> None:
        """Take over both signals; `children` tell what is to be killed at the second."""
        self._children += children
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._note)

    def _note(self, *_: Any) -> None:
        if not self.asked:
            self.asked = True
            return
        for child in [child for children in self._children for child in children()]:
            child.kill()
        with contextlib.suppress(Exception):
            if self._restore is not None:
                self._restore()
        # Whatever this process was waiting for is gone; nothing of it is worth an orderly end.
        os.write(sys.stdout.fileno(), b"\nkilled\n")
        os._exit(KILLED)
