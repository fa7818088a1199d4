"""Faults in an environment's first steps are reported in one sentence each, before a run starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from envs.check import check
from envs.checking.one_agent import milliseconds
from warren.errors import ConfigurationError

ENVIRONMENT = """
import gymnasium, numpy as np

class Game(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (3,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    steps = 0
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(3, np.float32), {}
    def step(self, action):
        self.steps += 1
        observation, reward = np.zeros(3, np.float32), 1.0
        if self.steps == 7:
            FAULT
        return observation, reward, self.steps % 5 == 0, False, {}
"""

GAME = """
import numpy as np
from envs import Turn, TwoPlayerVectorEnv

class Game(TwoPlayerVectorEnv):
    def __init__(self, num_envs, seed):
        super().__init__("game", num_envs, (2,), 3)
    def turn(self, player, reward=0.0, done=False):
        n, self.player = self.num_envs, player
        made = Turn(np.full(n, player, np.int8), np.zeros((n, 2), np.float32), np.ones((n, 3), np.bool_),
                    np.array([[reward, -reward]] * n, np.float32), np.full(n, done), np.zeros(n, np.bool_))
        FAULT
        return made
    def _reset(self):
        return self.turn(0)
    def _step(self, action):
        return self.turn(1) if self.player == 0 else self.turn(0, 1.0, True)
"""


def problem(tmp_path: Path, text: str, fault: str, *, two_player: bool = False) -> str:
    path = tmp_path / "my_game.py"
    path.write_text(text.replace("FAULT", fault))
    with pytest.raises(ConfigurationError) as error:
        check(f"{path}:Game", {}, two_player=two_player)
    assert len(error.value.problems) == 1
    return error.value.problems[0]


@pytest.mark.parametrize("env_id", ["CartPole-v1", "gym:CartPole-v1", "Pendulum-v1", "Taxi-v4"])
def test_an_environment_that_can_be_stepped_passes(env_id: str) -> None:
    check(env_id, {}, two_player=False)


@pytest.mark.parametrize("env_id", ["matrix:rps", "openspiel:kuhn_poker", "pettingzoo:tictactoe_v3"])
def test_a_game_that_can_be_stepped_passes(env_id: str) -> None:
    check(env_id, {}, two_player=True)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("1 / 0", "my_game.py:15: ZeroDivisionError: division by zero"),
        ("np.zeros(3).reshape(2, 2)", "my_game.py:15: ValueError: cannot reshape"),
        ("observation = np.zeros(4, np.float32)", "gave an observation of shape [4]; its observation_space has [3]"),
        ("observation[1] = np.nan", "gave an observation that is not finite: [ 0. nan  0.]"),
        ("reward = float('nan')", "gave the reward nan; it must be a finite number"),
        ("reward = None", "gave the reward None; it must be a finite number"),
        ("reward = np.array([1.0])", "gave the reward array([1.]); it must be one number"),
        ("reward = [1, [2]]", "gave the reward [1, [2]], which is not of numbers"),
        ("return observation, reward, False, {}", "gave 4 values; it must give 5: observation, reward, terminated"),
        ("return observation", "gave a single value, array([0., 0., 0.], dtype=float32); it must give 5"),
        ("return observation, reward, True, False, None", "gave the info None, which must be a dict"),
        (
            "return observation, reward, np.zeros(2, bool), False, {}",
            "gave terminated=array([False, False]); it must be",
        ),
        ("raise ValueError('no')", "step(action="),  # a bare number would look like that of the step
        ("import os; print('bye'); os._exit(3)", "ended the process that tried it (3)"),
    ],
)
def test_a_failing_step_is_reported_in_one_sentence(tmp_path: Path, fault: str, message: str) -> None:
    assert message in problem(tmp_path, ENVIRONMENT, fault)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("made.reward[:, 1] = 0", "is not zero-sum: a game ended with returns 1 and 0"),
        ("made.observation[0, 0] = np.inf", "gave a Turn whose observation is not finite"),
        ("made.action_mask[0] = False", "has no legal action"),
        ("return None", "_reset() gave None; it must give an envs.Turn"),
        ("if player: return made.to_move, made.reward", "_step() gave a tuple; it must give an envs.Turn"),
        ("made.reward = None", "gave a Turn whose reward is None; it must be an array"),
        ("made.done = made.done.tolist()", "gave a Turn whose done is [False, False]; it must be an array"),
        ("made.reward = made.reward[:, 0]", "gave a Turn whose reward has shape [2]; it must be [2, 2]"),
        ("raise KeyError('board')", "my_game.py:12: KeyError: 'board'"),
    ],
)
def test_a_faulty_game_is_reported_in_one_sentence(tmp_path: Path, fault: str, message: str) -> None:
    assert message in problem(tmp_path, GAME, fault, two_player=True)


NESTED = """
import gymnasium, numpy as np
from gymnasium import spaces

class Game(gymnasium.Env):
    observation_space = spaces.Dict({"place": spaces.Box(-1, 1, (2,)), "hand": spaces.Tuple([spaces.Discrete(4)] * 2)})
    action_space = spaces.Discrete(2)
    def reset(self, *, seed=None, options=None):
        observation = {"place": np.zeros(2, np.float32), "hand": (1, 2)}
        FAULT
        return observation, {}
    def step(self, action):
        return self.reset()[0], 0.0, False, False, {}
"""


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("observation['place'] = np.zeros(2)", ": 'place' is float64 in place of float32"),
        ("observation['place'] = np.zeros(3, np.float32)", ": 'place' has shape [3] in place of [2]"),
        ("observation['place'] += 7", ": 'place' is array([7., 7.], dtype=float32), of Box(-1.0, 1.0, (2,), float32)"),
        ("observation['hand'] = (1, 4)", ": 'hand/1' is 4, of Discrete(4)"),
        ("observation['hand'] = None", ": 'hand' is None"),
        ("del observation['hand']", ": it lacks, or has beside its space, hand"),
        ("observation['more'] = 1", ": it lacks, or has beside its space, more"),
        ("return observation", "reset() gave a single value"),
    ],
)
def test_the_part_of_an_observation_that_is_at_fault_is_named(tmp_path: Path, fault: str, message: str) -> None:
    assert message in problem(tmp_path, NESTED, fault)


def test_a_step_that_hangs_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("envs.checking.first_steps.WITHIN", 5.0)
    assert "took more than 5 s" in problem(tmp_path, ENVIRONMENT, "while True: pass")


def test_times_have_three_digits_and_no_exponent() -> None:
    assert [milliseconds(seconds) for seconds in (0.008414, 0.9994, 0.9996, 1.3204)] == [
        "8.41 ms", "999 ms", "1,000 ms", "1,320 ms"
    ]  # fmt: skip
