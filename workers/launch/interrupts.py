"""How a launcher is told to stop: the first signal asks, the second ends it and its children at once."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterable
from typing import Any

from workers.servers.process import Child

KILLED = 130  # exit status after Ctrl-C, as shells have it


class Interrupts:
    """Ctrl-C and SIGTERM: the first asks for a clean stop, the second kills every child and ends the process."""

    def __init__(self) -> None:
        self.asked = False
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
        # Whatever this process was waiting for is gone; nothing of it is worth an orderly end.
        os.write(sys.stdout.fileno(), b"\nkilled\n")
        os._exit(KILLED)
