"""Tests of signals to a launcher: the first, or the terminal's end, asks it to end; a second kills; handlers return."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import termios
import threading
from pathlib import Path

from support.waiting import PATIENCE, until

from workers.launch.processes.interrupts import Interrupts
from workers.servers.process import Child

LAUNCHER = """
import os, signal, sys, time
from pathlib import Path
from workers.launch.processes.interrupts import Interrupts
folder = Path(sys.argv[1])
interrupts = Interrupts()
interrupts.install()
(folder / "installed").touch()
while not interrupts.asked:
    time.sleep(0.01)
for _ in range(3):
    print("a line for a terminal that is gone", flush=True)
(folder / "ended").write_text("in order")
"""


def test_signal_handlers_are_restored() -> None:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    interrupts = Interrupts()
    interrupts.install()
    interrupts.install(list)
    try:
        assert all(signal.getsignal(number) != handler for number, handler in before.items())
        signal.raise_signal(signal.SIGTERM)
        assert interrupts.asked
    finally:
        interrupts.give_back()
    assert all(signal.getsignal(number) == handler for number, handler in before.items())


def test_a_signal_that_nohup_ignores_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    interrupts = Interrupts()
    try:
        interrupts.install()
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        interrupts.give_back()
        signal.signal(signal.SIGHUP, before)


def test_a_launcher_whose_terminal_is_closed_ends_in_order(tmp_path: Path) -> None:
    controller, terminal = pty.openpty()

    def own_terminal() -> None:
        os.setsid()
        import fcntl

        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    child = subprocess.Popen(
        [sys.executable, "-c", LAUNCHER, str(tmp_path)], stdin=terminal, stdout=terminal, stderr=terminal,
        preexec_fn=own_terminal,
    )  # fmt: skip
    os.close(terminal)
    until((tmp_path / "installed").exists)
    os.close(controller)
    assert child.wait(PATIENCE) == 0
    assert (tmp_path / "ended").read_text() == "in order"


def test_a_second_signal_kills_a_child_at_once_during_a_poll(tmp_path: Path) -> None:
    child = Child("sleeper", [sys.executable, "-c", "import time; time.sleep(600)"], tmp_path / "log")
    try:
        until(lambda: child.server() is not None)
        sleeper = child.server()
        assert sleeper is not None
        guard = child._guard
        with guard._waitpid_lock:  # type: ignore[union-attr]  # a poll that the signal interrupted holds it
            done = threading.Thread(target=child.kill_at_once, daemon=True)
            done.start()
            done.join(PATIENCE)
            assert not done.is_alive()
        until(lambda: not child.alive)
        until(lambda: not sleeper.is_running())
    finally:
        child.kill()
