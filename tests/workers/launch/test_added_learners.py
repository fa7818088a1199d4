"""Tests of added learners: a player whose learner cannot run is paused with the reason, and the league goes on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import redis
from support.waiting import PATIENCE

from league.matchmaking.view import Player
from warren.errors import WarrenError
from workers.config.roles import Done, Restart
from workers.launch.kinds import added_learners as module
from workers.launch.kinds.added_learners import AddedLearners
from workers.launch.processes import deaths
from workers.launch.processes.supervisor import Supervisor
from workers.launch.spec import ProcessSpec


class Store:
    """A stand-in for the league and its Redis: one player, paused and resumed. `reasons`: all that were noted."""

    prefix = "league:"

    def __init__(self) -> None:
        self.hunter, self.reasons = Player("hunter", 0, "pfsp"), list[str]()
        self.away, self.redis, self.shown = False, self, dict[str, str]()

    def pause(self, name: str, by: str) -> None:
        if self.away:
            raise redis.ConnectionError("away")
        self.hunter = replace(self.hunter, paused=True)

    def hset(self, key: str, name: str, reason: str) -> None:
        self.shown[name] = reason
        self.reasons.append(reason)

    def hdel(self, key: str, name: str) -> None:
        self.shown.pop(name, None)


class League:
    """Learners whose program is in the file `learner` of the folder."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.said, self.store = folder, list[str](), Store()
        self.supervisor = Supervisor(folder, {}, 5, self.said.append)
        spec = ProcessSpec(
            "learner-hunter", range(1), (str(folder / "learner"),), single=True, grace=1.0,
            done=Done.once, restart=Restart.optional,
        )  # fmt: skip
        monkeypatch.setattr(module, "added_learners", lambda config, folder, player: [spec])
        context: Any = SimpleNamespace(
            supervisor=self.supervisor, folder=SimpleNamespace(path=folder), say=self.said.append
        )
        config: Any = None
        store: Any = self.store
        self.added = AddedLearners(config, context, store)

    def look_until(self, condition: Callable[[], Any]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert not self.supervisor.poll(), "the run is over"
            self.added.look([self.store.hunter])
            assert time.monotonic() < deadline, self.said
            time.sleep(0.02)

    def works(self, program: str = "import time; print('works', flush=True); time.sleep(600)") -> None:
        (self.folder / "learner").write_text(program)


@pytest.fixture
def league(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[League]:
    monkeypatch.setattr(deaths, "SOON", 3600.0)  # on a busy machine a start alone takes long
    made = League(tmp_path, monkeypatch)
    yield made
    made.supervisor.stop()


def test_a_learner_that_fails_each_time_pauses_its_player_until_a_resume(league: League) -> None:
    league.works("raise ValueError('there is no game')")
    league.added.start("hunter")
    league.look_until(lambda: league.store.hunter.paused)
    assert league.store.reasons == [f"ValueError: there is no game ({league.folder}/learner:1)"]
    for _ in range(3):
        league.added.look([league.store.hunter])
    (told,) = (line for line in league.said if line.startswith("error: player hunter is paused"))
    assert "there is no game" in told and told.endswith("python -m league.manage resume hunter")
    league.works()
    league.store.hunter = replace(league.store.hunter, paused=False)
    league.look_until(lambda: "works" in (league.folder / "logs" / "learner-hunter.log").read_text())
    assert league.supervisor.alive() == 1 and len(league.supervisor.children) == 1
    assert len(league.store.reasons) == 1 and not league.store.shown


def test_a_learner_that_the_system_cannot_start_pauses_its_player(
    league: League, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(spec: Any, rank: int) -> None:
        raise WarrenError("learner-hunter could not be started: no processes are left")

    with monkeypatch.context() as patch:
        patch.setattr(league.supervisor, "start", start)
        league.added.start("hunter")
    league.store.away = True
    league.added.look([league.store.hunter])
    assert not league.store.hunter.paused
    league.store.away = False
    league.added.look([league.store.hunter])
    assert league.store.reasons == ["learner-hunter could not be started: no processes are left"]
    league.works()
    league.store.hunter = replace(league.store.hunter, paused=False)
    league.look_until(lambda: league.supervisor.alive() == 1)


def test_a_player_of_the_settings_is_left_alone(league: League) -> None:
    league.added.look([replace(league.store.hunter, name="main")])
    assert not league.store.reasons and not league.said
