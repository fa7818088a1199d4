"""Signals that stop a launcher: the first asks it to stop, the second ends it and its children at once.

    interrupts.install(lambda: children)
    ...                                     # reads `interrupts.asked` now and then
    interrupts.give_back()                  # restores the handlers

The end of the terminal (SIGHUP) asks as well, except under nohup. Before a run has begun, `raised` lets the first
signal end it.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NoReturn

from workers.servers.process import Child

KILLED = 130  # exit status after Ctrl-C, as shells have it


@contextlib.contextmanager
def raised() -> Iterator[None]:
    """Let SIGTERM and SIGHUP raise KeyboardInterrupt, as Ctrl-C does, except while an `Interrupts` has them.

    By default they would end the process at once, and leave what it has begun to write.
    """
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    taken = {number: handler for number, handler in before.items() if handler is signal.SIG_DFL}
    for number in taken:
        signal.signal(number, _raise)
    try:
        yield
    finally:
        for number, handler in taken.items():
            if signal.getsignal(number) is _raise:
                signal.signal(number, handler)


def _raise(*_: Any) -> NoReturn:
    raise KeyboardInterrupt


class Interrupts:
    """Handlers of Ctrl-C, SIGTERM and SIGHUP: the first signal asks for a clean stop, the second kills all.

    `restore`: restores the terminal before the second ends the process.
    """

    def __init__(self, restore: Callable[[], None] | None = None) -> None:
        self.asked = False
        self._restore = restore
        self._children: list[Callable[[], Iterable[Child]]] = []
        self._before: dict[int, Any] = {}  # handlers
        self._terminals: list[int] = []  # file descriptors

    def install(self, *children: Callable[[], Iterable[Child]]) -> None:
        """Take over the signals; `children` return the processes to kill at the second."""
        self._children += children
        if self._before:
            return
        self._terminals = [number for number in (0, 1, 2) if os.isatty(number)]
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._note)

    def give_back(self) -> None:
        """Restore the former handlers."""
        before, self._before = self._before, {}
        for number, handler in before.items():
            signal.signal(number, handler)

    def _note(self, number: int, _: Any) -> None:
        if number == signal.SIGHUP:
            self._leave_terminal()
        if not self.asked:
            self.asked = True
            return
        if number == signal.SIGHUP:  # it comes twice when both a shell and its terminal end
            return
        for child in [child for children in self._children for child in children()]:
            child.kill_at_once()
        with contextlib.suppress(Exception):
            if self._restore is not None:
                self._restore()
        # The children are dead; nothing is left that needs an orderly end.
        with contextlib.suppress(OSError):
            os.write(1, b"\nkilled\n")
        os._exit(KILLED)

    def _leave_terminal(self) -> None:
        """Print nothing from now on: the terminal is gone, and each line would be an error."""
        nowhere = os.open(os.devnull, os.O_RDWR)
        for number in self._terminals:
            os.dup2(nowhere, number)
        os.close(nowhere)
