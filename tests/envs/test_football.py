"""Google Research Football: sides, rewards, ends of episodes, and the build. Most tests need it built."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import numpy as np
import pytest

import envs
from envs import EnvSettings, build_football
from envs.checking import one_agent
from envs.checking.report import Report
from envs.football.picture import HEIGHT, WIDTH, picture
from warren.errors import ConfigurationError, UnknownName

built = pytest.mark.skipif(importlib.util.find_spec("gfootball") is None, reason="gfootball is not built")
TO_THE_GOAL = [5] * 12 + [12] * 8  # run to the right, shoot


@built
def test_the_checker_finds_no_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one_agent, "VECTOR_SECONDS", 0.05)
    monkeypatch.setattr("envs.checking.repeatable.STEPS", 60)
    report = Report()
    one_agent.check(report, EnvSettings("football:academy_empty_goal_close"), 120)
    assert report.problems == []


@built
def test_a_goal_terminates_and_the_clock_truncates() -> None:
    env = envs.make("football:academy_empty_goal_close")
    env.reset(seed=3)
    total, over = 0.0, False
    for action in TO_THE_GOAL * 5:
        _, reward, over, truncated, _ = env.step(action)
        total += reward
        assert not truncated
        if over:
            break
    assert over and total == 1
    env.close()
    env = envs.make("football:1_vs_1_easy")
    env.reset(seed=3)
    steps, over, truncated = 0, False, False
    while not (over or truncated):
        _, _, over, truncated, _ = env.step(0)
        steps += 1
    assert truncated and not over and steps == 501
    env.close()


@built
def test_checkpoint_rewards_equal_those_of_the_librarys_wrapper() -> None:
    from gfootball.env import config, football_env, wrappers

    level = "academy_run_to_score"
    mine = envs.make(f"football:{level}", rewards="scoring,checkpoints")
    theirs = wrappers.CheckpointRewardWrapper(
        football_env.FootballEnv(config.Config({"level": level, "game_engine_random_seed": 0}))
    )
    for seed in (1, 2):
        mine.unwrapped.match.reset(seed)  # type: ignore[attr-defined]
        for name, value in (("game_engine_random_seed", seed), ("reverse_team_processing", bool(seed % 2))):
            theirs.unwrapped._config[name] = value
        theirs.reset()
        total = 0.0
        for action in TO_THE_GOAL * 8:
            _, reward, over, truncated, _ = mine.step(action)
            _, same, done, _ = theirs.unwrapped.step([action])  # the wrapper's step requires newer gym's five values
            same = theirs.reward(same)
            assert reward == pytest.approx(float(same[0]), abs=1e-6)
            total += reward
            assert done == (over or truncated)
            if done:
                break
        assert total > 0.3


@built
def test_each_side_sees_itself_on_the_left_and_rewards_sum_to_zero() -> None:
    games = envs.make_two_player("football:1_vs_1_easy", 1, 5)
    turn = games.reset()
    sides = []
    for _ in range(2):
        sides.append(turn.observation[0])
        turn = games.step(np.array([0]))
    np.testing.assert_allclose(sides[0][:4], sides[1][:4], atol=0.05)  # a symmetric scenario
    chance = np.random.default_rng(0)
    for _ in range(1200):
        turn = games.step(chance.integers(games.num_actions, size=1))
        assert turn.reward.sum() == 0
    assert games.pop_finished().length.sum() > 0
    assert games.action_text(0, 12) == "shot"
    games.close()


@built
def test_unknown_scenarios_and_settings_are_named() -> None:
    with pytest.raises(UnknownName, match="football:academy_corner"):
        envs.make("football:acadmy_corner")
    with pytest.raises(UnknownName, match="physics_steps_per_frame"):
        envs.make("football:academy_corner", physics_step_per_frame=5)
    with pytest.raises(ConfigurationError, match="representation='pixels' is not one of simple115, minimap"):
        envs.make("football:academy_corner", representation="pixels")
    with pytest.raises(ConfigurationError, match="not zero-sum"):
        envs.make_two_player("football:1_vs_1_easy", 1, 0, rewards="scoring,checkpoints")


def test_without_football_the_error_names_the_command_that_builds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "gfootball", None)
    with pytest.raises(ConfigurationError, match="build it: make gfootball"):
        envs.make("football:academy_corner")


def test_a_picture_shows_the_ball() -> None:
    pytest.importorskip("cv2")
    seen = {
        "left_team": np.array([[-1.0, 0.0], [0.0, 0.2]]), "right_team": np.array([[0.9, 0.0]]), "active": 1,
        "ball": np.array([0.5, -0.2, 0.1]), "score": [1, 0], "steps_left": 12,
    }  # fmt: skip
    image = picture(seen)
    assert image.shape == (HEIGHT, WIDTH, 3) and image.dtype == np.uint8
    moved = picture({**seen, "ball": np.array([-0.5, -0.2, 0.1])})
    assert (image != moved).any(axis=2).sum() > 40


def test_a_build_names_what_it_lacks_and_the_python_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WARREN_CACHE", str(tmp_path))
    monkeypatch.setattr(build_football, "works", lambda: False)
    monkeypatch.setattr(build_football, "INCLUDES", (tmp_path,))
    monkeypatch.setattr(build_football.shutil, "which", lambda name: None)
    monkeypatch.setattr(build_football, "NEWEST_PYTHON", (9, 9))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert build_football.main() == 2
    assert "sudo apt-get install g++ cmake make libgl1-mesa-dev libsdl2-dev" in capsys.readouterr().err
    monkeypatch.setattr(build_football, "NEWEST_PYTHON", (3, 0))
    assert build_football.main() == 2
    assert "build .venv by Python 3.11: make setup PYTHON3=python3.11" in capsys.readouterr().err
