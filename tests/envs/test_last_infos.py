"""Numbers of an episode's last info that are its figures, from every kind of environment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode

import envs
from envs import EnvSettings
from warren.errors import ConfigurationError
from workers.evaluation.episodes import Episodes

HERE = str(Path(__file__).resolve())
NAMES = ("is_success", "score")


class Reach(gymnasium.Env):
    """Episodes of `length` steps, in which action 1 in the last one succeeds; the score counts all actions 1."""

    observation_space, action_space = Box(-1, 1, (1,), np.float32), Discrete(2)

    def __init__(self, length: int = 3, wrong: Any = None):
        self.length, self.wrong = length, wrong

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = self.score = 0
        return np.zeros(1, np.float32), {"is_success": "of a reset, which nobody reads"}

    def step(self, action):
        self.steps += 1
        self.score += int(action)
        over = self.steps == self.length
        info = {"is_success": bool(action), "score": np.int64(self.score), "text": "x"} if over else {}
        if over and self.wrong is not None:
            info = {name: value for name, value in {**info, **self.wrong}.items() if value != "missing"}
        return np.zeros(1, np.float32), 1.0, False, over, info


class ReachVector(gymnasium.vector.VectorEnv):
    """Reach, stepped as a whole."""

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}
    single_observation_space, single_action_space = Reach.observation_space, Reach.action_space

    def __init__(self, num_envs: int, told: bool = True):
        self.num_envs, self.told = num_envs, told

    def reset(self, *, seed=None, options=None):
        self.steps, self.score = 0, np.zeros(self.num_envs, int)
        return np.zeros((self.num_envs, 1), np.float32), {}

    def step(self, actions):
        self.steps += 1
        self.score += actions
        info: dict[str, Any] = {}
        ended = np.full(self.num_envs, self.steps == 3)
        if self.steps == 3:
            final = np.empty(self.num_envs, object)
            final[:] = [np.zeros(1, np.float32)] * self.num_envs
            last = {"is_success": actions == 1, "score": self.score} if self.told else {}
            info, self.steps, self.score = {"final_obs": final, "final_info": last}, 0, np.zeros(self.num_envs, int)
        observation = np.zeros((self.num_envs, 1), np.float32)
        return observation, np.ones(self.num_envs), np.zeros_like(ended), ended, info


ACTIONS = np.array([[1, 0, 1, 0], [1, 1, 0, 0], [1, 0, 0, 1]])


@pytest.mark.parametrize(
    ("settings", "merges"),
    [({}, False), ({}, True), ({"workers": 2}, False), ({"id": f"{HERE}:ReachVector"}, False)],
)
def test_the_last_info_of_an_episode_gives_its_figures(settings: dict[str, Any], merges: bool) -> None:
    given = EnvSettings(**{"id": f"{HERE}:Reach", "info_metrics": NAMES, **settings})
    assert given.figures == ["info_is_success", "info_score"]
    vector = envs.make_vector(given, 4, 1)
    vector.merges_infos = merges
    vector.reset()
    assert vector.pop_episodes().shape == (0, 4)
    for actions in (*ACTIONS, *ACTIONS[::-1]):
        vector.step(actions)
    vector.close()
    first = [[3, 3, success, score] for success, score in zip(ACTIONS[-1], ACTIONS.sum(0), strict=True)]
    second = [[3, 3, success, score] for success, score in zip(ACTIONS[0], ACTIONS.sum(0), strict=True)]
    np.testing.assert_array_equal(vector.pop_episodes(), first + second)


@pytest.mark.parametrize(
    ("wrong", "workers", "said"),
    [
        ({"score": "missing"}, 0, "ended an episode whose info has is_success, text; give it 'score' too, or leave"),
        ({"score": "missing"}, 1, "ended an episode whose info has is_success, text; give it 'score' too, or leave"),
        ({"score": float("nan")}, 0, "ended an episode with nan as 'score' in its info; give a finite number"),
        ({"score": [1, 2]}, 0, "ended an episode with [1, 2] as 'score' in its info; give a finite number"),
    ],
)
def test_a_last_info_without_the_number_is_refused(wrong: dict[str, Any], workers: int, said: str) -> None:
    given = EnvSettings(f"{HERE}:Reach", {"length": 1, "wrong": wrong}, workers=workers, info_metrics=NAMES)
    episodes = Episodes(given, 2, 2, 1)
    with pytest.raises(ConfigurationError) as refused:
        episodes.play(_Always(given))  # type: ignore[arg-type]
    episodes.close()
    assert f"Reach': step() {said}" in str(refused.value)


def test_a_users_vector_without_the_numbers_is_refused() -> None:
    given = EnvSettings(f"{HERE}:ReachVector", {"told": False}, info_metrics=NAMES)
    episodes = Episodes(given, 2, 2, 1)
    with pytest.raises(ConfigurationError, match="whose info has nothing; give it 'is_success' too"):
        episodes.play(_Always(given))  # type: ignore[arg-type]


class Lives(Reach):
    """Reach of two lives: the first is lost after two of four steps, with an info that says nothing."""

    lives = 2

    def step(self, action):
        observation, reward, ended, cut, info = super().step(action)
        self.lives = 1 if self.steps >= 2 else 2
        return observation, reward, ended, cut, info


@pytest.mark.parametrize("workers", [0, 1])
def test_a_lost_life_need_not_give_the_numbers(workers: int) -> None:
    given = EnvSettings(f"{HERE}:Lives", {"length": 4}, workers=workers, episodic_life=True, info_metrics=NAMES)
    vector = envs.make_vector(given, 2, 1)
    vector.merges_infos = False
    vector.reset()
    ends = [vector.step(np.array([1, 0]))[2:4] for _ in range(5)]
    vector.close()
    assert sum(terminated.any() for terminated, _ in ends) >= 1  # a life
    np.testing.assert_array_equal(vector.pop_episodes()[:, 2], [1, 0])


def test_evaluations_have_the_figures_too() -> None:
    given = EnvSettings(f"{HERE}:Reach", info_metrics=NAMES)
    episodes = Episodes(given, 3, 2, 1)
    np.testing.assert_array_equal(episodes.play(_Always(given)), [[3, 3, 1, 3]] * 3)  # type: ignore[arg-type]


def test_settings_that_do_not_fit_are_refused() -> None:
    twice = EnvSettings("CartPole-v1", info_metrics=["score", "score"])
    assert list(twice.problems()) == ["env.info_metrics: ['score', 'score'] has a name twice; give each once"]
    (together,) = EnvSettings("mpe:simple_spread", info_metrics=["score"]).unfit_for(3)
    assert together.startswith("env.info_metrics: agents that learn together have an info each")
    in_c = EnvSettings("CartPole-v1", vectorization="native", info_metrics=["score"])
    with pytest.raises(ConfigurationError, match=r"'CartPole-v1' gives no infos; use env\.vectorization=auto"):
        envs.make_vector(in_c, 2, 1)


class _Always:
    """A policy that always takes action 1."""

    def __init__(self, settings: EnvSettings) -> None:
        self.space = envs.spaces(settings)[1]

    def initial_memory(self, rows: int) -> dict[str, Any]:
        return {}

    def act(self, observation: Any, memory: Any, mode: str, mask: Any) -> tuple[np.ndarray, Any]:
        return np.ones(len(observation), int), memory

    def env_action(self, action: np.ndarray) -> np.ndarray:
        return action
