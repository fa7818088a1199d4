"""Children are restarted with growing pauses, a bounded number of times, and their last lines are shown."""

from __future__ import annotations

import re
import signal
import stat
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from warren.errors import WarrenError
from workers.launch import supervisor as module
from workers.launch.supervisor import Supervisor

# Stands for `python -m workers.ROLE`: does what the file named after the child says.
ROLE = f"""#!{sys.executable}
import os, signal, sys, time
name = next(a.partition("=")[2] for a in sys.argv if a.startswith("name="))
print("life of", name, os.environ.get("WARREN_TEST"), flush=True)
exec(open(os.path.join(os.path.dirname(__file__), name)).read())
"""


class Stage:
    """A supervisor whose roles are little scripts."""

    def __init__(self, folder: Path, restarts: int) -> None:
        self.folder, self.said = folder, list[str]()
        self.supervisor = Supervisor(folder, {"WARREN_TEST": "given"}, restarts, self.said.append)

    def add(self, name: str, script: str, needed: bool = False) -> None:
        (self.folder / name).write_text(script)
        self.supervisor.add("role", name, f"name={name}", needed=needed)

    def lives(self, name: str) -> int:
        return (self.folder / "logs" / f"{name}.log").read_text().count("life of")

    def poll_until(self, condition: Callable[[], bool], timeout: float = 30.0) -> bool:
        """Poll until the supervisor says that it is over (True), or `condition` holds (False)."""
        deadline = time.monotonic() + timeout
        while not self.supervisor.poll():
            if condition():
                return False
            assert time.monotonic() < deadline, self.said
            time.sleep(0.02)
        return True


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Stage]]:
    role = tmp_path / "role"
    role.write_text(ROLE)
    role.chmod(role.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr(module, "sys", SimpleNamespace(executable=str(role)))
    made: list[Stage] = []

    def build(restarts: int = 2) -> Stage:
        made.append(Stage(tmp_path, restarts))
        return made[-1]

    yield build
    for one in made:
        one.supervisor.stop()


FAIL = "print('the game has crashed', flush=True); sys.exit(3)"
WORK = "time.sleep(600)"


def test_a_child_that_dies_is_restarted_and_its_last_lines_are_shown(stage: Callable[..., Stage]) -> None:
    it = stage(restarts=5)
    it.add("actor-0", FAIL)
    it.poll_until(lambda: it.lives("actor-0") == 3)
    assert "actor-0 ended with status 3" in it.said[0]
    assert "the game has crashed" in it.said[0]
    assert "life of actor-0 given" in it.said[0]
    waits = [float(re.search(r"\((\d) of 5\) in ([\d.]+) s", text)[2]) for text in it.said]  # type: ignore[index]
    assert waits[:2] == [0.25, 0.5]


def test_a_child_that_keeps_dying_is_given_up_with_its_last_lines(stage: Callable[..., Stage]) -> None:
    it = stage(restarts=2)
    it.add("actor-0", FAIL)
    with pytest.raises(WarrenError, match=r"(?s)the game has crashed.*actor-0 died 3 times; giving up \(restarts=2\)"):
        it.poll_until(lambda: False)
    assert it.lives("actor-0") == 3


def test_no_restarts_means_none(stage: Callable[..., Stage]) -> None:
    it = stage(restarts=0)
    it.add("actor-0", FAIL)
    with pytest.raises(WarrenError, match="died 1 times; giving up"):
        it.poll_until(lambda: False)


def test_earlier_deaths_are_forgiven_after_a_calm_while(
    stage: Callable[..., Stage], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CALM", 0.0)
    it = stage(restarts=1)
    it.add("actor-0", FAIL)
    it.poll_until(lambda: it.lives("actor-0") == 4)
    assert all("(1 of 1) in 0.25 s" in text for text in it.said)


def test_the_run_is_over_when_the_needed_child_ends_well(stage: Callable[..., Stage]) -> None:
    it = stage()
    it.add("learner", "time.sleep(0.3)", needed=True)
    it.add("actor-0", WORK)
    assert it.poll_until(lambda: False)
    assert it.said == []


def test_an_actor_that_ends_well_ahead_of_its_learner_is_no_death(stage: Callable[..., Stage]) -> None:
    it = stage()
    it.add("actor-0", "pass")
    it.add("learner", "time.sleep(1.0)", needed=True)
    assert it.poll_until(lambda: False)
    assert it.said == []
    assert it.lives("actor-0") == 1


def test_an_actor_that_ends_well_while_its_learner_works_on_is_restarted(
    stage: Callable[..., Stage], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FAREWELL", 0.3)
    it = stage()
    it.add("learner", WORK, needed=True)
    it.add("actor-0", "pass")
    it.poll_until(lambda: it.lives("actor-0") == 2)
    assert "actor-0 ended with status 0" in it.said[0]


def test_a_needed_child_that_fails_is_restarted_like_any(stage: Callable[..., Stage]) -> None:
    it = stage()
    it.add("learner", FAIL, needed=True)
    it.poll_until(lambda: it.lives("learner") == 2)


def test_one_childs_pause_does_not_hold_up_another(stage: Callable[..., Stage]) -> None:
    it = stage(restarts=5)
    it.add("actor-0", FAIL)
    it.poll_until(lambda: it.lives("actor-0") == 3)
    it.add("actor-1", FAIL)
    began = time.monotonic()
    it.poll_until(lambda: it.lives("actor-1") == 2)
    assert time.monotonic() - began < 5


def test_a_stop_reaches_all_at_the_same_time_and_kills_who_does_not_listen(
    stage: Callable[..., Stage], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "GRACE", 1.0)
    it = stage()
    deaf = f"signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); {WORK}"
    for index in range(3):
        it.add(f"actor-{index}", deaf)
    it.add("actor-3", WORK)
    it.poll_until(lambda: all("deaf" in (it.folder / "logs" / f"actor-{i}.log").read_text() for i in range(3)))
    assert it.supervisor.alive() == 4
    began = time.monotonic()
    it.supervisor.stop()
    assert time.monotonic() - began < 3.0, "the grace times of three children added up"
    assert it.supervisor.alive() == 0
    statuses = [child.status for child in it.supervisor.processes()]
    assert statuses == [128 + signal.SIGKILL] * 3 + [128 + signal.SIGTERM]
    it.supervisor.stop()


def test_a_child_that_is_not_wanted_any_more_leaves_and_is_not_restarted(stage: Callable[..., Stage]) -> None:
    it = stage()
    it.add("actor-0", WORK)
    it.add("actor-1", WORK)
    it.poll_until(lambda: it.lives("actor-0") == it.lives("actor-1") == 1)
    it.supervisor.remove("actor-1")
    it.poll_until(lambda: len(it.supervisor.children) == 1)
    assert [child.name for child in it.supervisor.children] == ["actor-0"]
    assert it.said[-1].startswith("actor-1 has left")
    assert it.lives("actor-1") == 1
    with pytest.raises(ValueError, match="expected 1"):
        it.supervisor.remove("actor-1")
