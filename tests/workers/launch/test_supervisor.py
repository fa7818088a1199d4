"""Tests of the supervisor: it restarts children after growing pauses, only so often, and shows their last lines."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from support.waiting import PATIENCE

from warren.errors import WarrenError
from workers.config.roles import Done, Restart
from workers.launch.processes import deaths, failure_log
from workers.launch.processes import supervisor as module
from workers.launch.processes.supervisor import Supervisor
from workers.launch.spec import ProcessSpec

# A stand-in for a role: runs the code in the file that has the child's name.
ROLE = """
import os, signal, sys, time
name = sys.argv[1]
print("start of", name, os.environ.get("WARREN_TEST"), flush=True)
exec(open(os.path.join(os.path.dirname(__file__), name)).read())
"""


class Stage:
    """A supervisor whose roles are little scripts."""

    def __init__(self, folder: Path, restarts: int) -> None:
        self.folder, self.said = folder, list[str]()
        self.away = False
        self.supervisor = Supervisor(
            folder, {"WARREN_TEST": "given"}, restarts, self.said.append, lambda: self.away, lambda: self.away
        )

    def add(self, name: str, script: str, needed: bool = False, **more: Any) -> None:
        (self.folder / name).write_text(script)
        done = Done.run if needed else Done.restart
        command = (str(self.folder / "role"), name)
        self.supervisor.start(
            ProcessSpec(name, range(1), command, single=True, **{"done": done, "grace": 1.0, **more}), 0
        )

    def starts(self, name: str) -> int:
        return (self.folder / "logs" / f"{name}.log").read_text().count("start of")

    def poll_until(self, condition: Callable[[], bool], timeout: float = 2 * PATIENCE) -> bool:
        """Poll until the supervisor says that the run is over (return True), or `condition` holds (return False)."""
        deadline = time.monotonic() + timeout
        while not self.supervisor.poll():
            if condition():
                return False
            assert time.monotonic() < deadline, self.said
            time.sleep(0.02)
        return True


@pytest.fixture(autouse=True)
def slow_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Count every death as soon after a start and none as after a calm time: on a busy machine a start takes long."""
    monkeypatch.setattr(deaths, "SOON", 3600.0)
    monkeypatch.setattr(deaths, "CALM", 3600.0)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Callable[..., Stage]]:
    role = tmp_path / "role"
    role.write_text(ROLE)
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
    it.poll_until(lambda: it.starts("actor-0") == 3)
    assert "actor-0 ended with status 3" in it.said[0]
    assert "the game has crashed" in it.said[0]
    assert "start of actor-0 given" in it.said[0]
    waits = [float(re.search(r"\((\d) of 5\) in ([\d.]+) s", text)[2]) for text in it.said]  # type: ignore[index]
    assert waits[:2] == [0.25, 0.5]


LONG = """
os.write(1, b"".join(b"line %d of a long log\\n" % line for line in range(200)))  # at once
while not os.path.exists(os.path.join(os.path.dirname(__file__), "go")):
    time.sleep(0.02)
print("the newest line", flush=True)
sys.exit(3)
"""


def test_a_log_over_its_bound_is_put_aside_and_goes_on_anew(
    stage: Callable[..., Stage], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workers.servers.process.LONGEST_LOG", 2000)
    it = stage(restarts=5)
    it.add("actor-0", LONG)
    log, older = (it.folder / "logs" / name for name in ("actor-0.log", "actor-0.log.1"))
    it.poll_until(lambda: log.exists() and log.stat().st_size == 0 and older.exists())
    assert oct(older.stat().st_mode & 0o777) == "0o600"
    (it.folder / "go").touch()
    it.poll_until(lambda: bool(it.said))
    assert "the newest line" in it.said[0], "a death's last lines are those of the new file"
    assert log.read_text().startswith("the newest line\n") and "line 199 of" in older.read_text()
    assert len([*older.parent.iterdir()]) == 2


def test_a_log_that_cannot_be_put_aside_is_kept_whole(
    stage: Callable[..., Stage], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workers.servers.process.LONGEST_LOG", 2000)
    it = stage()
    older = it.folder / "logs" / "actor-0.log.1"
    older.mkdir(parents=True)  # writing there raises OSError, like a full disk
    it.add("actor-0", LONG)
    log = it.folder / "logs" / "actor-0.log"
    it.poll_until(lambda: "line 199 of" in log.read_text())
    for _ in range(3):
        assert not it.supervisor.poll()
    assert log.read_text().count("of a long log") == 200


def test_a_child_that_keeps_dying_is_given_up_with_its_last_lines(stage: Callable[..., Stage]) -> None:
    it = stage(restarts=2)
    it.add("actor-0", FAIL)
    with pytest.raises(WarrenError, match=r"(?s)the game has crashed.*actor-0 died 3 times; giving up \(restarts=2\)"):
        it.poll_until(lambda: False)
    assert it.starts("actor-0") == 3


def test_a_child_that_cannot_be_started_again_yet_is_tried_again(stage: Callable[..., Stage]) -> None:
    it = stage(restarts=5)
    it.add("actor-0", WORK)
    log = it.folder / "logs" / "actor-0.log"
    it.poll_until(log.exists)
    (child,) = it.supervisor.processes()
    child.kill()
    it.poll_until(lambda: bool(it.said))
    log.rename(log.with_suffix(".kept"))
    log.mkdir()  # opening it for writing raises OSError, like a start at the machine's limit of processes
    it.poll_until(lambda: "actor-0 could not be started: [Errno 21]" in it.said[-1])
    log.rmdir()
    it.poll_until(lambda: it.supervisor.alive() == 1)


def test_without_restarts_the_first_death_ends_the_run(stage: Callable[..., Stage]) -> None:
    it = stage(restarts=0)
    it.add("actor-0", FAIL)
    with pytest.raises(WarrenError, match="died 1 times; giving up"):
        it.poll_until(lambda: False)


def test_the_last_line_of_a_run_that_is_given_up_names_the_exception_and_its_line(stage: Callable[..., Stage]) -> None:
    one = stage(restarts=0)
    one.add("play", "exec(compile('def move():\\n  raise ValueError(9)\\nmove()', '/home/me/game.py', 'exec'))")
    with pytest.raises(WarrenError) as given_up:
        one.poll_until(lambda: False)
    assert str(given_up.value).splitlines()[-1] == (
        "play died 1 times; giving up (restarts=0): ValueError: 9 (/home/me/game.py:2)"
    )


def test_earlier_deaths_are_forgiven_after_a_calm_while(
    stage: Callable[..., Stage], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deaths, "CALM", 0.0)
    it = stage(restarts=1)
    it.add("actor-0", FAIL)
    it.poll_until(lambda: it.starts("actor-0") == 4)
    assert all("(1 of 1) in 0.25 s" in text for text in it.said)


def test_the_run_is_over_when_the_needed_child_ends_well(stage: Callable[..., Stage]) -> None:
    it = stage()
    it.add("learner", "time.sleep(0.3)", needed=True)
    it.add("actor-0", WORK)
    assert it.poll_until(lambda: False)
    assert it.said == []


def test_an_actor_that_ends_just_before_its_learner_is_no_death(
    stage: Callable[..., Stage], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ENDED_FOR", 3600.0)
    it = stage()
    it.add("actor-0", "pass")
    it.add("learner", "while not os.path.exists(os.path.join(os.path.dirname(__file__), 'go')): time.sleep(0.02)", True)
    it.poll_until(lambda: it.supervisor.children[0].ended_at > 0.0)
    (it.folder / "go").touch()
    assert it.poll_until(lambda: False)
    assert it.said == []
    assert it.starts("actor-0") == 1


def test_an_actor_that_ends_well_while_its_learner_works_on_is_restarted(
    stage: Callable[..., Stage], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ENDED_FOR", 0.3)
    it = stage()
    it.add("learner", WORK, needed=True)
    it.add("actor-0", "pass")
    it.poll_until(lambda: it.starts("actor-0") == 2)
    assert "actor-0 ended with status 0" in it.said[0]


def test_a_needed_child_that_fails_is_restarted_like_any(stage: Callable[..., Stage]) -> None:
    it = stage()
    it.add("learner", FAIL, needed=True)
    it.poll_until(lambda: it.starts("learner") == 2)


def test_one_childs_pause_does_not_hold_up_another(stage: Callable[..., Stage]) -> None:
    it = stage(restarts=5)
    it.add("actor-0", FAIL)
    paused = it.supervisor.children[0]
    it.poll_until(lambda: paused.retry_at > 0.0)
    paused.retry_at += 3600.0
    it.add("actor-1", FAIL)
    it.poll_until(lambda: it.starts("actor-1") == 2)


def noting(calls: list[str], name: str, call: Callable[..., None]) -> Callable[..., None]:
    def noted(*args: Any) -> None:
        calls.append(name)
        call(*args)

    return noted


def test_a_stop_asks_all_children_at_once_and_kills_those_that_ignore_it(
    stage: Callable[..., Stage], monkeypatch: pytest.MonkeyPatch
) -> None:
    it = stage()
    deaf = f"signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); {WORK}"
    for index in range(3):
        it.add(f"actor-{index}", deaf)
    it.add("actor-3", WORK, grace=PATIENCE)  # so that it dies of the first signal, however busy the machine
    it.poll_until(lambda: all("deaf" in (it.folder / "logs" / f"actor-{i}.log").read_text() for i in range(3)))
    assert it.supervisor.alive() == 4
    calls: list[str] = []
    for child in it.supervisor.processes():
        monkeypatch.setattr(child, "ask_to_stop", noting(calls, "ask", child.ask_to_stop))
        monkeypatch.setattr(child, "stop", noting(calls, "wait", child.stop))
    it.supervisor.stop()
    assert calls[:5] == ["ask"] * 4 + ["wait"], "the grace times of three children added up"
    assert it.supervisor.alive() == 0
    statuses = [child.status for child in it.supervisor.processes()]
    assert statuses == [128 + signal.SIGKILL] * 3 + [128 + signal.SIGTERM]
    it.supervisor.stop()


def test_a_removed_child_leaves_and_is_not_restarted(stage: Callable[..., Stage]) -> None:
    it = stage()
    it.add("actor-0", WORK)
    it.add("actor-1", WORK)
    it.poll_until(lambda: it.starts("actor-0") == it.starts("actor-1") == 1)
    it.supervisor.remove("actor-1")
    it.poll_until(lambda: len(it.supervisor.children) == 1)
    assert [child.name for child in it.supervisor.children] == ["actor-0"]
    assert it.said[-1].startswith("actor-1 has left")
    assert it.starts("actor-1") == 1
    with pytest.raises(ValueError, match="expected 1"):
        it.supervisor.remove("actor-1")


RAISE = "raise ValueError('the rules have no such move')"


def test_a_child_that_fails_twice_in_the_same_way_is_not_tried_again(stage: Callable[..., Stage]) -> None:
    it = stage(restarts=5)
    it.add("actor-0", RAISE)
    with pytest.raises(WarrenError, match=r"(?s)failed twice in the same way.*ValueError: the rules have no such move"):
        it.poll_until(lambda: False)
    assert it.starts("actor-0") == 2


def test_a_killed_childs_printed_error_is_not_its_cause_of_death(stage: Callable[..., Stage]) -> None:
    it = stage(restarts=2)
    it.add("actor-0", "print('error: a match was refused', flush=True); os.kill(os.getpid(), signal.SIGKILL)")
    with pytest.raises(WarrenError, match=r"(?s)137: killed \(SIGKILL.*died 3 times"):
        it.poll_until(lambda: False)


def test_a_failure_that_a_server_may_have_caused_is_tried_again(stage: Callable[..., Stage]) -> None:
    it = stage(restarts=2)
    it.add("actor-0", "raise ConnectionError('Redis is away')")
    with pytest.raises(WarrenError, match=r"died 3 times; giving up \(restarts=2\)"):
        it.poll_until(lambda: False)


def test_an_optional_process_never_ends_the_run(stage: Callable[..., Stage], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deaths, "MOST_WAIT_OPTIONAL", 0.01)
    it = stage(restarts=1)
    it.add("evaluator-0", FAIL, restart=Restart.optional)
    it.add("flower", RAISE, restart=Restart.optional)
    it.poll_until(lambda: it.starts("evaluator-0") == 4 and any("without it" in text for text in it.said))
    assert "flower is down: ValueError: the rules have no such move" in "".join(it.supervisor.troubles())
    assert it.starts("flower") == 2


def test_deaths_while_a_server_is_away_do_not_count_and_restarts_wait_for_it(stage: Callable[..., Stage]) -> None:
    it = stage(restarts=0)
    it.away = True
    it.add("actor-0", FAIL)
    it.poll_until(lambda: any("once the servers answer" in text for text in it.said))
    deadline = time.monotonic() + 2.0
    it.poll_until(lambda: time.monotonic() > deadline)
    assert it.starts("actor-0") == 1
    it.away = False
    with pytest.raises(WarrenError, match="died 1 times"):
        it.poll_until(lambda: False)
    assert it.starts("actor-0") == 2


def test_restarting_and_stopped_children_are_reported(stage: Callable[..., Stage]) -> None:
    it = stage(restarts=1000)  # it dies again and again, however long the other takes to start
    it.add("actor-0", FAIL)
    it.add("actor-1", WORK)
    it.poll_until(lambda: bool(it.said) and it.starts("actor-1") == 1)
    process = it.supervisor.children[1].child.server()  # type: ignore[union-attr]
    assert process is not None
    process.suspend()
    it.poll_until(lambda: any("actor-1 is stopped (SIGSTOP)" in text for text in it.supervisor.troubles()))
    it.poll_until(lambda: any("actor-0 is being restarted" in text for text in it.supervisor.troubles()))
    process.resume()


def test_watching_a_child_does_not_read_all_processes_of_the_machine(
    stage: Callable[..., Stage], monkeypatch: pytest.MonkeyPatch
) -> None:
    it = stage(restarts=5)
    it.add("actor-0", WORK)
    child = it.supervisor.children[0].child
    assert child is not None
    it.poll_until(lambda: child.server() is not None)
    found = child.server()
    monkeypatch.delattr(psutil.Process, "children")  # this would read them all
    assert it.supervisor.troubles() == []
    assert child.server() is found
    monkeypatch.undo()
    child.kill()
    it.poll_until(lambda: child.server() is None)


def test_the_users_own_error_is_named_though_another_process_died_of_it(
    stage: Callable[..., Stage], tmp_path: Path
) -> None:
    game = tmp_path / "game.py"
    game.write_text("def step():\n    raise RuntimeError('the game has crashed')\n")
    it = stage(restarts=3)
    it.add("actor-0", f"sys.path.insert(0, {str(tmp_path)!r})\nimport game, traceback\ntry:\n    game.step()\n"
           f"except RuntimeError:\n    traceback.print_exc()\n{WORK}")  # fmt: skip
    it.poll_until(lambda: "the game has crashed" in (tmp_path / "logs" / "actor-0.log").read_text())
    it.add("learner", "print('ERROR training cannot go on: 3 rounds in a row failed in the actors'); sys.exit(1)")
    with pytest.raises(WarrenError) as caught:
        it.poll_until(lambda: False)
    assert f"RuntimeError: the game has crashed ({game}:2)" in str(caught.value)
    assert it.starts("learner") == 2


def test_a_child_whose_numbers_are_not_finite_is_not_restarted(stage: Callable[..., Stage]) -> None:
    it = stage(restarts=5)
    it.add("learner", "print('error: ppo, minibatch 3: value_loss is nan', flush=True); sys.exit(65)", needed=True)
    with pytest.raises(WarrenError, match=r"(?s)learner cannot go on: ppo, minibatch 3: value_loss is nan"):
        it.poll_until(lambda: False)
    assert it.starts("learner") == 1


def test_the_cause_of_each_restart_is_kept_in_the_folder(stage: Callable[..., Stage]) -> None:
    here, began = stage(), time.time()
    here.add("actor", "raise ValueError(f'the game has crashed, {os.getpid()}')", restart=Restart.optional)
    here.poll_until(lambda: here.starts("actor") == 3)
    first, second = [*failure_log.read(here.folder)][:2]
    assert first["name"] == "actor" and first["cause"].startswith("ValueError: the game has crashed")
    assert first["cause"] != second["cause"]
    assert first["status"] == 1 and "restarting" in first["then"] and "start of actor given" in first["said"]
    assert began <= first["time"] <= second["time"]
