"""Tests of how benchmarks end: without a traceback by Ctrl-C and bad input, with one by a defect."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    "raised, status, printed",
    [
        ("KeyboardInterrupt", -signal.SIGINT, ""),
        ("warren.errors.ConfigurationError('peers: none')", 1, "error: peers: none\n"),
    ],
)
def test_a_benchmark_ends_without_a_traceback(raised: str, status: int, printed: str) -> None:
    done = ended_by(raised)
    assert (done.returncode, done.stderr) == (status, printed)


def test_a_defect_shows_its_traceback() -> None:
    done = ended_by("KeyError('x')")
    assert done.returncode == 1
    assert done.stderr.startswith("Traceback") and done.stderr.endswith("KeyError: 'x'\n")


def ended_by(raised: str) -> subprocess.CompletedProcess[str]:
    program = f"import benchmarks, warren.errors; raise {raised}"
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
