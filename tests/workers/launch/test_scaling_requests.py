"""Tests of requests to a launcher for more or fewer processes: carried out once, in time, and while Redis is away."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import redis
from celery import Celery

from workers import scale
from workers.launch.folder import RunFolder
from workers.launch.hosts.scaling import ScaledGroup, Scaling
from workers.launch.processes.supervisor import Supervisor
from workers.launch.spec import ProcessSpec
from workers.scale import own_runs
from workers.servers.record import Record


class Stage:
    """A Scaling of three actors, one of them on another host, without real processes."""

    def __init__(self, keep: Callable[[Mapping[str, int]], None] | None = None) -> None:
        self.spec = ProcessSpec("actor", range(2), (), setting="actors", num=3)
        self.left: list[str] = []
        self.kept: list[Mapping[str, int]] = []
        self.stops = 0
        children = [SimpleNamespace(spec=self.spec, name=f"actor-{rank}", done=False) for rank in range(2)]
        self.supervisor: Any = SimpleNamespace(
            children=children, start=self._start, remove=lambda name: self.left.append(name)
        )
        client = SimpleNamespace(time=lambda: (int(time.time()), 0))
        self.scaling = Scaling(
            Celery("launcher", broker="memory://"), client, [self.spec], self.supervisor, lambda counts: [],
            keep or self.kept.append, print, self._stop, "box-1",
        )  # fmt: skip
        self.scaling._listener = SimpleNamespace(start=lambda: None)  # type: ignore[assignment]
        self.scaling.start()

    def _start(self, spec: ProcessSpec, rank: int) -> Any:
        return SimpleNamespace(name=spec.name(rank))

    def _stop(self) -> None:
        self.stops += 1

    def ask(self, **body: Any) -> dict[str, Any]:
        answer: Future[dict[str, Any]] = Future()
        self.scaling._requests.put(({"until": time.time() + 60, **body}, answer))
        self.scaling.poll()
        return answer.result(0)


@pytest.mark.parametrize("change", ["+1", "-1"])
def test_a_failed_change_leaves_the_counts_and_the_launcher_goes_on(change: str) -> None:
    def away(_: Mapping[str, int]) -> None:
        raise redis.ConnectionError("Redis is away")

    stage = Stage(away)
    assert "Redis is away" in stage.ask(wanted={"actors": change})["error"]
    assert stage.scaling.counts == {"actors": 3} and not stage.left


def test_a_request_that_is_made_twice_is_carried_out_once() -> None:
    stage = Stage()
    first = stage.ask(wanted={"actors": "+1"}, identity="a")
    assert first["done"] == ["started actor-3"]
    assert stage.ask(wanted={"actors": "+1"}, identity="a") == first
    assert stage.scaling.counts == {"actors": 4}
    assert stage.ask(wanted={"actors": "+1"}, identity="b")["counts"] == {"actors": 5}
    assert "1 of the 5 actors are other hosts'" in stage.ask(wanted={})["notes"][0]
    assert stage.kept == [{"actors": 4}, {"actors": 5}]


def test_a_request_that_nobody_waits_for_any_more_is_not_carried_out() -> None:
    stage = Stage()
    assert "too late" in stage.ask(wanted={"actors": "+1"}, until=time.time() - 5)["error"]
    given_up: Future[dict[str, Any]] = Future()
    stage.scaling._requests.put(({"wanted": {"actors": "+1"}, "until": time.time() + 60}, given_up))
    given_up.cancel()
    stage.scaling.poll()
    assert stage.scaling.counts == {"actors": 3}


def test_actors_of_other_hosts_count_but_are_not_stopped() -> None:
    stage = Stage()
    answer = stage.ask(wanted={"actors": "1"})
    assert answer["done"] == ["told actor-1 to finish and leave", "told actor-0 to finish and leave"]
    assert answer["notes"] == [
        "1 of the 1 actors are other hosts', and stay as they are: this command changes those of box-1, "
        "which leads the run"
    ]
    assert stage.left == ["actor-1", "actor-0"]
    assert stage.scaling.counts == {"actors": 1}


def test_a_process_that_cannot_be_started_is_reported_and_the_run_goes_on(tmp_path: Path) -> None:
    stage, said = Stage(), list[str]()
    supervisor = Supervisor(tmp_path, {}, 2, said.append)
    (tmp_path / "logs" / "actor-4.log").mkdir(parents=True)  # opening it for writing raises OSError
    working = replace(stage.spec, command=("-c", "import time; time.sleep(600)"))
    stage.scaling._supervisor, stage.scaling._groups["actors"].spec = supervisor, working
    try:
        answer = stage.ask(wanted={"actors": "+3"}, identity="a")
        assert "actor-4 could not be started: [Errno 21]" in answer["error"]
        assert "started actor-3" in answer["error"] and "actors=4" in answer["error"]
        assert [child.name for child in supervisor.children] == ["actor-3"] and supervisor.alive() == 1
        assert stage.scaling.counts == {"actors": 4} and stage.kept == [{"actors": 6}, {"actors": 4}]
        assert stage.ask(wanted={"actors": "+3"}, identity="a") == answer, "it is not carried out a second time"
        assert not supervisor.poll() and stage.ask(wanted={"actors": "+1"}, identity="b")["done"] == ["started actor-5"]
    finally:
        supervisor.stop()


@pytest.mark.parametrize("wanted", ["4", None, [1], {"actors": None}, {"actors": {"a": 1}}, {7: "+1"}])
def test_an_invalid_request_is_answered_with_an_error(wanted: Any) -> None:
    stage = Stage()
    assert "error" in stage.ask(wanted=wanted)
    assert stage.scaling.counts == {"actors": 3}


def test_environments_scale_once_they_play_and_ended_ones_do_not_count() -> None:
    stage = Stage()
    plays = replace(stage.spec, role="play", ranks=range(3), num=3, setting="play", phase=1)
    stage.scaling._groups["play"] = ScaledGroup(plays, next_rank=3)
    assert "play: they start when all services are served" in stage.ask(wanted={"play": "+1"})["error"]
    assert stage.scaling.counts == {"actors": 3, "play": 3}
    playing = [SimpleNamespace(spec=plays, name=f"play-{rank}", done=False) for rank in range(3)]
    stage.supervisor.children += playing
    stage.scaling.take_over(1)
    playing[2].done = True
    assert stage.ask(wanted={"play": "+1"})["counts"] == {"actors": 3, "play": 3}
    assert stage.ask(wanted={"play": "-2"})["done"] == [
        f"told {name} to finish and leave" for name in ("play-3", "play-1")
    ]


def test_the_servers_of_a_run_of_services_are_found_by_its_name(tmp_path: Path) -> None:
    with RunFolder.take(tmp_path / "dqn" / "20260101") as folder:
        Record("amqp://here", "redis://here", "rabbitmq", "its own", os.getpid(), run="dqn-1a2b").write(folder.path)
        assert own_runs(tmp_path) == {"dqn-1a2b": ("amqp://here", "redis://here")}
    assert own_runs(tmp_path) == {}


def test_a_wrong_count_and_missing_options_are_reported_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("WARREN_RUN", "WARREN_BROKER_URL", "WARREN_REDIS_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["scale", "actors=x", "actors", "actors=+1"])
    assert scale.main() == 2
    errors = [line.partition(": ")[2] for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert errors[:2] == [f"{one}: write it as actors=4, actors=+1 or actors=-1" for one in ("actors=x", "actors")]
    assert [error.split(":")[0] for error in errors[2:]] == ["--run", "--broker-url and --redis-url"]


def test_a_run_stops_when_it_is_asked_to() -> None:
    stage = Stage()
    assert stage.ask(command="stop")["done"] == ["told the run to stop"]
    assert stage.stops == 1
