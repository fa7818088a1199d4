"""Test that a stop signal is handled even while the process checks its event."""

from __future__ import annotations

import subprocess
import sys

import pytest
from support.waiting import PATIENCE

TOLD = """
import os, signal, sys, threading
from warren import stop_signals

stopping = threading.Event()
stop_signals.hear(lambda number: (print(number), stopping.set()))
threading.Timer(0.05, os.kill, (os.getpid(), int(sys.argv[1]))).start()
while not stopping.is_set():
    stopping.wait(0.0)  # which holds the event's lock most of the time
"""


@pytest.mark.parametrize("number", [*[15] * 7, 2])
def test_a_stop_signal_is_handled_at_any_moment(number: int) -> None:
    command = [sys.executable, "-c", TOLD, str(number)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (done.returncode, done.stdout) == (0, f"{number}\n"), done.stderr
