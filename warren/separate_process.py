"""A separate process in which the user's code is tried, as it may hang, print, or end its process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from warren.errors import ConfigurationError

TAIL_LINES = 8  # lines of the process's stderr in the error
_ROOT = Path(__file__).resolve().parents[1]


def python(*words: str) -> list[str]:
    """Return the command of another Python of this environment, as in python("-m", "workers.actor").

    It imports nothing from the working directory (-P), whose folders may have the names of Warren's packages, unless
    Warren itself is imported from there.
    """
    return [sys.executable, *([] if Path.cwd() == _ROOT else ["-P"]), *words]


def ask(module: str, question: Any, within: float, *, too_long: str, no_answer: str) -> Any:
    """Return the answer of `python -m module` to `question`; both are JSON, on its standard input and output.

    Raises ConfigurationError: with `too_long` after `within` s; with `no_answer`, its exit status and its last lines if
    it ends without an answer.
    """
    try:
        done = subprocess.run(
            python("-m", module),
            input=json.dumps(question), capture_output=True, text=True, timeout=within, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise ConfigurationError(too_long) from None
    try:
        return json.loads(done.stdout)
    except ValueError:
        tail = "\n".join(done.stderr.splitlines()[-TAIL_LINES:])
        raise ConfigurationError(f"{no_answer} ({done.returncode}):\n{tail}") from None
