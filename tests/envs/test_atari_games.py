"""Atari games of two players: observations, rewards, chance. Most tests need the emulator."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

import envs
from envs.checking import two_player
from envs.checking.report import Report
from warren.errors import ConfigurationError

needed = ("multi_agent_ale_py", "ale_py", "cv2", "pettingzoo", "pygame")
missing = [name for name in needed if importlib.util.find_spec(name) is None]
emulated = pytest.mark.skipif(bool(missing), reason=f"{', '.join(missing)} not installed")
PONG = "pettingzoo:pong_v3"


def names(games: envs.TwoPlayerVectorEnv) -> list[str]:
    return [games.action_text(0, action) for action in range(games.num_actions)]


@emulated
def test_the_checker_finds_no_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("envs.checking.repeatable.STEPS", 60)
    monkeypatch.setattr(two_player, "GAMES", 2)
    report = Report()
    two_player.check(report, PONG, {}, 600)
    assert report.problems == []


@emulated
def test_either_side_of_pong_sees_itself_on_the_right_and_moves_its_paddle() -> None:
    for player in (0, 1):
        moved = {}
        for action in ("RIGHT", "LEFT"):
            games = envs.make_two_player(PONG, 1, 3, noop_start=0, repeat_action_probability=0.0)
            turn = games.reset()
            assert turn.observation.shape == (1, 4, 84, 84) and turn.observation.dtype == np.uint8
            known = names(games)
            for _ in range(30):
                seen = []
                for mover in (0, 1):
                    assert turn.to_move.tolist() == [mover]
                    seen.append(turn.observation[0, -1])
                    turn = games.step(np.array([known.index(action if mover == player else "NOOP")]))
            assert np.array_equal(seen[0], seen[1][:, ::-1])
            moved[action] = paddle(seen[player])
            games.close()
        assert moved["RIGHT"] < moved["LEFT"] - 5  # rows: it is further up


def paddle(screen: np.ndarray) -> float:
    """Return the mean row of the right paddle in a screen of 84 x 84 pixels."""
    field = screen[15:80, 72:76].astype(int)
    rows = np.flatnonzero((field != np.median(field)).any(axis=1))
    return float(rows.mean())


@emulated
def test_pong_is_zero_sum_and_ends() -> None:
    games = envs.make_two_player(PONG, 1, 3, max_cycles=3000)
    generator, turn, points = np.random.default_rng(0), games.reset(), 0.0
    for _ in range(3000):
        turn = games.step(generator.integers(games.num_actions, size=1))
        assert turn.reward.sum() == 0
        points += float(np.abs(turn.reward[0, 0]))
        if turn.done[0]:
            break
    assert turn.done[0] and points > 3
    games.close()


@emulated
def test_a_plane_tells_the_player_in_a_game_whose_halves_differ() -> None:
    games = envs.make_two_player("pettingzoo:tennis_v3", 1, 0)
    turn = games.reset()
    assert turn.observation.shape == (1, 5, 84, 84) and not turn.observation[0, -1].any()
    turn = games.step(np.array([0]))
    assert (turn.observation[0, -1] == 255).all()
    games.close()


@emulated
def test_a_game_repeats_alone_from_its_seed() -> None:
    games, alone = envs.make_two_player(PONG, 2, 3), envs.make_two_player(PONG, 1, 4)
    turn = games.reset()
    assert games.chance is not None and alone.chance is not None
    alone.reset()
    for _ in range(200):
        alone.step(np.array([2]))
    again = alone.reset(seeds=games.chance.seeds[1:])
    actions = np.random.default_rng(0)
    for _ in range(120):
        np.testing.assert_array_equal(turn.observation[1:], again.observation)
        action = actions.integers(games.num_actions, size=2)
        turn, again = games.step(action), alone.step(action[1:])
    assert games.picture(1).shape == (210, 160, 3)
    games.close()
    alone.close()


@emulated
def test_invalid_settings_and_games_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="frame_skip=0 must be at least 1"):
        envs.make_two_player(PONG, 1, 0, frame_skip=0)
    with pytest.raises(ConfigurationError, match="warlords_v3' has 4 agents; it must have two"):
        envs.make_two_player("pettingzoo:warlords_v3", 1, 0)


def test_without_the_emulator_the_error_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pettingzoo")
    monkeypatch.setitem(__import__("sys").modules, "multi_agent_ale_py", None)
    with pytest.raises(ConfigurationError, match=r"install -e '\.\[atari-two\]'"):
        envs.make_two_player(PONG, 1, 0)
