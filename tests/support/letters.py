"""The command line of dead letters, run in this process, and dead letters to run it on."""

from __future__ import annotations

import io
import json
import sys
from contextlib import redirect_stderr, redirect_stdout
from typing import Any, NamedTuple

import pytest

from support.calling import Calling
from support.waiting import PATIENCE, until
from tasks.admin.dead_letters import DeadLetters
from workers.ui import deadletters


class Done(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


def command(run: Any, *arguments: str, answer: str = "") -> Done:
    """Run the command in this process, with `answer` as its input."""
    where = ["--broker-url", run.broker_url, "--redis-url", run.redis_url, "--run", run.topology.run]
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patched, redirect_stdout(out), redirect_stderr(err):
        patched.setattr(sys, "stdin", io.StringIO(answer))
        patched.setenv("COLUMNS", "250")
        return Done(deadletters.main(None, [*where, *arguments]), out.getvalue(), err.getvalue())


def listed(run: Calling) -> list[dict[str, Any]]:
    done = command(run, "--json")
    assert done.returncode == 0, done.stderr
    return list(json.loads(done.stdout)["letters"])


def waiting(run: Calling) -> int:
    """Return the number of dead letters; they stay."""
    with DeadLetters(run.app, run.topology) as letters:
        return letters.count() or 0


def fail(run: Calling, *messages: str) -> None:
    """Make a dead letter of each message: call a one-way service that raises."""
    before = waiting(run)
    for message in messages:
        run.solver.send("actor.push_badly", message)
    assert run.solver.flush(PATIENCE) == 0
    until(lambda: waiting(run) == before + len(messages))
