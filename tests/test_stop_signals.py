"""Tests of stop signals: while the process checks its event, and while it imports modules."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.waiting import PATIENCE

ROOT = Path(__file__).resolve().parents[1]
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


@pytest.mark.parametrize(
    ("module", "imported"), [("workers.play", "torch"), ("workers.exploitability", "torch"), ("league.show", "numpy")]
)
def test_ctrl_c_while_modules_are_imported_shows_no_traceback(module: str, imported: str, tmp_path: Path) -> None:
    (tmp_path / f"{imported}.py").write_text("raise KeyboardInterrupt")
    path = os.pathsep.join((str(tmp_path), str(ROOT)))
    done = subprocess.run(
        [sys.executable, "-m", module], cwd=tmp_path, env={**os.environ, "PYTHONPATH": path},
        capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")
