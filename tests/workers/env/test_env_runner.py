"""Env runners: their calls to actors, and their groups of environments."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from envs import EnvSettings
from warren.errors import ConfigurationError, RemoteFailure, WorkerLost
from workers.env import runner
from workers.env.group import Group
from workers.env.runner import ActorCaller


class Answered:
    def __init__(self, answer: Callable[[], Any]) -> None:
        self._answer = answer

    def result(self, timeout: float) -> Any:
        return self._answer()


class Actors:
    """Stand-in for Solver: actors are lost at the calls numbered `lost` and end at the call `ending`."""

    def __init__(self, *lost: int, ending: int | None = None, failing: bool = False) -> None:
        self.lost, self.ending, self.failing = lost, ending, failing
        self.sent: list[str] = []
        self.joined = 0

    def send(self, service: str, argument: Any) -> Answered:
        number = len(self.sent)
        self.sent.append(service)

        def answer() -> Any:
            if number in self.lost:
                raise WorkerLost(service, "it died")
            if service == runner.JOIN:
                self.joined += 1
                return f"actor-{self.joined}.act"
            if number == self.ending:
                return None
            if self.failing:
                raise RemoteFailure(service, "ValueError", "no")
            return {"action": argument, **argument}

        return Answered(answer)


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "ASK_AGAIN", 0.0)


def test_a_group_stays_with_an_actor_and_finds_another_when_that_is_lost() -> None:
    actors = Actors(3)
    asking = ActorCaller(actors, "a", threading.Event())  # type: ignore[arg-type]
    assert [asking.answer({"n": n})["action"]["n"] for n in range(4)] == [0, 1, 2, 3]  # type: ignore[index]
    assert actors.sent == [runner.JOIN, *["actor-1.act"] * 3, runner.JOIN, *["actor-2.act"] * 2]


def test_a_group_whose_actor_ends_repeats_its_call_to_another() -> None:
    actors = Actors(ending=2)
    asking = ActorCaller(actors, "a", threading.Event())  # type: ignore[arg-type]
    assert [asking.answer({"n": n})["n"] for n in range(2)] == [0, 1]  # type: ignore[index]
    assert actors.sent == [runner.JOIN, *["actor-1.act"] * 2, runner.JOIN, "actor-2.act"]


def test_a_group_that_is_told_to_leave_joins_another_actor() -> None:
    actors = Actors()
    asking = ActorCaller(actors, "a", threading.Event())  # type: ignore[arg-type]
    for number in range(3):
        asking.answer({"leave": ""} if number == 1 else {})
    assert actors.sent == [runner.JOIN, *["actor-1.act"] * 2, runner.JOIN, "actor-2.act"]


def test_a_group_goes_where_it_is_sent_and_elsewhere_if_that_actor_is_lost() -> None:
    actors = Actors(2)
    asking = ActorCaller(actors, "a", threading.Event())  # type: ignore[arg-type]
    for number in range(2):
        asking.answer({"leave": "actor-9.act"} if number == 0 else {})
    assert actors.sent == [runner.JOIN, "actor-1.act", "actor-9.act", runner.JOIN, "actor-2.act"]


def test_actors_that_only_fail_are_not_asked_for_ever() -> None:
    with pytest.raises(RemoteFailure):
        ActorCaller(Actors(failing=True), "a", threading.Event()).answer({})  # type: ignore[arg-type]


def test_a_stopped_caller_waits_for_no_actor() -> None:
    stopping = threading.Event()

    def late() -> Any:
        stopping.set()
        raise TimeoutError

    actors = Actors()
    actors.send = lambda service, argument: Answered(late)  # type: ignore[method-assign]
    assert ActorCaller(actors, "a", stopping).answer({}) is None  # type: ignore[arg-type]


def test_a_group_repeats_the_last_outcome_until_the_next_decision() -> None:
    group = Group("a", EnvSettings("CartPole-v1", {"max_episode_steps": 2}), 3, 0)
    first = group.call()
    assert first["step"] == 0 and first["outcome"] is None and first["observation"].shape == (3, 4)
    for _ in range(2):
        group.step({"action": np.zeros(3, np.int64)})
    call = group.call()
    assert call["step"] == 2 and group.call()["observation"] is call["observation"]
    outcome = call["outcome"]
    assert outcome["truncated"].all() and outcome["reward"].tolist() == [1, 1, 1]
    slots, last, legal = outcome["cut"]
    assert legal is None
    assert slots.tolist() == [0, 1, 2] and not np.array_equal(last, call["observation"])
    assert outcome["episodes"].tolist() == [[2, 2]] * 3
    group.close()


def test_an_environment_that_gives_nan_is_named(tmp_path: Any) -> None:
    file = tmp_path / "broken.py"
    file.write_text(
        "import gymnasium, numpy\n"
        "class Broken(gymnasium.Env):\n"
        "    observation_space = gymnasium.spaces.Box(-1, 1, (2,), numpy.float32)\n"
        "    action_space = gymnasium.spaces.Discrete(2)\n"
        "    def reset(self, **_): return numpy.zeros(2, numpy.float32), {}\n"
        "    def step(self, action): return numpy.full(2, numpy.nan, numpy.float32), 0.0, False, False, {}\n"
    )
    group = Group("a", EnvSettings(f"{file}:Broken"), 2, 0)
    with pytest.raises(ConfigurationError, match=r"Broken.*nan"):
        group.step({"action": np.zeros(2, np.int64)})


def test_an_environment_that_leaves_its_observation_space_is_named(tmp_path: Any) -> None:
    file = tmp_path / "leaves.py"
    file.write_text(
        "import gymnasium\n"
        "class Leaves(gymnasium.Env):\n"
        "    observation_space = action_space = gymnasium.spaces.Discrete(2)\n"
        "    def reset(self, **_): return 0, {}\n"
        "    def step(self, action): return 2, 0.0, False, False, {}\n"
    )
    group = Group("a", EnvSettings(f"{file}:Leaves"), 2, 0)
    said = r"Leaves': step\(\) left its observation_space: observation holds 2 at \[0\]; it must be within 0 and 1"
    with pytest.raises(ConfigurationError, match=said):
        group.step({"action": np.zeros(2, np.int64)})
