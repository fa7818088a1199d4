"""Tests of the cause of a process's failure, as its output tells it."""

from __future__ import annotations

from pathlib import Path

from workers.launch.processes.failure import Failure, failure_in, failure_of
from workers.servers.process import explain_status

LOG = """\
2026-01-01 12:00:00 INFO    celery.worker: ready
Traceback (most recent call last):
  File "/usr/lib/python3.11/threading.py", line 38, in run
  File "/home/me/game.py", line 12, in step
    raise BadMove(7)
  File "/home/me/.venv/lib/python3.11/site-packages/numpy/core.py", line 3, in add
game.BadMoveError: move 7 is off the board
2026-01-01 12:00:01 INFO    workers.actor: 128 steps
"""


def test_the_last_exception_is_told_with_the_place_in_the_users_code() -> None:
    found = failure_in(LOG)
    assert found == Failure("game.BadMoveError: move 7 is off the board", "/home/me/game.py:12")
    assert str(found) == "game.BadMoveError: move 7 is off the board (/home/me/game.py:12)"
    assert failure_in("all is well\n") is None


REMOTE = """\
Traceback (most recent call last):
  File "/home/me/play.py", line 4, in <module>
    add(1)
  File "/opt/venv/lib/python3.11/site-packages/celery/local.py", line 9, in call
warren.errors.RemoteFailure: adder.add failed with ValueError: no such move
Traceback (most recent call last):
  File "/home/me/worker.py", line 12, in add
    raise ValueError("no such move")
ValueError: no such move
"""


def test_a_services_exception_is_told_with_its_name_and_its_own_place() -> None:
    expected = Failure("adder.add failed with ValueError: no such move", "/home/me/worker.py:12")
    assert failure_in(REMOTE) == expected
    assert failure_in(REMOTE + "2026 INFO bye\n") == expected
    assert failure_in(REMOTE + LOG) == failure_in(LOG), "a later one is the last"


def test_a_services_exception_in_a_library_is_told_with_the_callers_place() -> None:
    theirs = REMOTE.replace("/home/me/worker.py", "/opt/site-packages/numpy/core.py")
    assert failure_in(theirs) == Failure("adder.add failed with ValueError: no such move", "/home/me/play.py:4")


def test_warrens_own_error_counts_without_a_traceback() -> None:
    found = failure_in("2026 ERROR workers.learning: training cannot go on: 3 rounds in a row failed\n")
    assert found == Failure("3 rounds in a row failed")
    assert failure_in("error: actors: 0 is too small\n") == Failure("actors: 0 is too small")


def test_failures_that_a_server_may_have_caused_are_passing() -> None:
    assert Failure("redis.exceptions.ConnectionError: Error 111").passing
    assert Failure("warren.errors.BrokerError: away").passing
    assert not Failure("ValueError: the Connection is wrong").passing


def test_the_newest_log_with_an_error_of_the_users_is_named(tmp_path: Path) -> None:
    for name, text in (("learner.log", "error: 3 rounds failed\n"), ("actor-0.log", LOG)):
        (tmp_path / name).write_text(text)
    found = failure_of([tmp_path / "learner.log", tmp_path / "actor-0.log", tmp_path / "none.log"])
    assert found is not None and found[0].name == "actor-0.log" and found[1].where == "/home/me/game.py:12"


def test_an_exit_status_of_a_signal_names_the_signal() -> None:
    assert explain_status(137) == "137: killed (SIGKILL; out of memory?)"
    assert explain_status(139) == "139: killed (SIGSEGV)"
    assert (explain_status(3), explain_status(None), explain_status(255)) == ("3", "None", "255")
