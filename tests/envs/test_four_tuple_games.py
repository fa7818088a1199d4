"""Old gym's four-tuple environments with one agent or two players; slimevolleygym if it is installed."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest

import envs
from envs.checking import one_agent, two_player
from envs.checking.report import Report
from envs.four_tuple_games import FourTupleGame
from envs.settings import EnvSettings

VOLLEY = "examples/slimevolley/slimevolley.py:SlimeVolley"


class Race:
    """The larger number advances; a game ends at a lead of 3, or is truncated after 20 steps."""

    observation_space = gymnasium.spaces.Box(-3, 3, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(3)

    def seed(self, seed: int) -> None:
        self.chance = np.random.default_rng(seed)

    def reset(self) -> np.ndarray:
        self.steps, self.ahead, self.luck = 0, 0, float(self.chance.random())
        return self.seen(1)

    def seen(self, side: int) -> np.ndarray:
        return np.array([side * self.ahead, self.luck], np.float32)

    def step(self, action: float, other: float) -> tuple[np.ndarray, float, bool, dict[str, Any]]:
        self.steps += 1
        self.ahead += int(np.sign(action - other))
        cut = self.steps == 20 and abs(self.ahead) < 3
        won = float(np.sign(self.ahead)) if abs(self.ahead) == 3 else 0.0
        info = {"otherObs": self.seen(-1), "TimeLimit.truncated": cut}
        return self.seen(1), won, cut or abs(self.ahead) == 3, info

    def close(self) -> None: ...


class RaceOfTwo(FourTupleGame):
    actions = (0.0, 0.5, 1.0)

    def make(self) -> Race:
        return Race()

    def second_observation(self, env: Race, observation: np.ndarray) -> np.ndarray:
        return env.seen(-1)


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one_agent, "VECTOR_SECONDS", 0.05)
    monkeypatch.setattr("envs.checking.repeatable.STEPS", 30)


def test_both_players_move_at_once_and_have_opposite_rewards() -> None:
    games = envs.make_two_player(f"{__file__}:RaceOfTwo", 2, 5)
    turn = games.reset()
    for expected in (1, 2, 3):
        before = turn.observation.copy()
        assert turn.to_move.tolist() == [0, 0]
        turn = games.step(np.array([2, 0]))
        assert turn.to_move.tolist() == [1, 1]
        np.testing.assert_array_equal(turn.observation[:, 0], -before[:, 0])  # the first player's move is not seen
        turn = games.step(np.array([0, 1]))
        if expected < 3:
            assert turn.observation[:, 0].tolist() == [expected, -expected]
    assert turn.done.all() and turn.reward.tolist() == [[1, -1], [-1, 1]] and not turn.truncated.any()
    assert turn.observation[:, 0].tolist() == [0, 0]


def test_a_time_limit_truncates() -> None:
    games = envs.make_two_player(f"{__file__}:RaceOfTwo", 1, 5)
    games.reset()
    for _ in range(40):
        turn = games.step(np.array([1]))
    assert turn.done.all() and turn.truncated.all() and not turn.reward.any()


def test_the_checker_finds_no_problem() -> None:
    report = Report()
    two_player.check(report, f"{__file__}:RaceOfTwo", {}, 800)
    assert report.problems == report.notes == []


def test_slimevolleygym_works_with_one_agent_on_this_numpy() -> None:
    pytest.importorskip("slimevolleygym")
    report = Report()
    one_agent.check(report, EnvSettings("gym:slimevolleygym:SlimeVolley-v0"), 300)
    assert report.problems == []


def test_slimevolleygym_works_as_a_game_of_two_players() -> None:
    pytest.importorskip("slimevolleygym")
    report = Report()
    two_player.check(report, VOLLEY, {}, 4000)
    assert report.problems == []
