"""Connect Four on arrays equals OpenSpiel's at every step."""

import numpy as np
import pytest

from envs.games.connect_four import ConnectFour
from envs.games.openspiel_games import StateVectorEnv, load, make_two_player
from envs.two_player.vector_env import Turn

TOGETHER = 40


def same(one: Turn, other: Turn) -> None:
    for name in ("to_move", "observation", "action_mask", "reward", "done", "truncated"):
        found, expected = getattr(one, name), getattr(other, name)
        assert found.dtype == expected.dtype, name
        np.testing.assert_array_equal(found, expected, err_msg=name)


@pytest.mark.parametrize("egocentric", [False, True])
def test_random_games_equal_openspiels(egocentric: bool) -> None:
    parameters = {"egocentric_obs_tensor": True} if egocentric else {}
    games = make_two_player("connect_four", TOGETHER, 0, **parameters)
    assert isinstance(games, ConnectFour) and games.max_return == 1
    states = StateVectorEnv(load("connect_four", **parameters), "connect_four", TOGETHER, 0)
    assert games.single_observation_space == states.single_observation_space
    generator = np.random.default_rng(0)
    one, other = games.reset(), states.reset()
    ended = 0
    for _ in range(-(-100_000 // TOGETHER)):
        same(one, other)
        assert games.history(3) == states.history(3) and games.text(3) == states.text(3)
        action = (generator.random(one.action_mask.shape) * one.action_mask).argmax(axis=1)
        assert games.action_text(3, int(action[3])) == states.action_text(3, int(action[3]))
        one, other = games.step(action), states.step(action)
        ended += int(one.done.sum())
        assert games.last_text(3) == states.last_text(3)
    same(one, other)
    assert ended > TOGETHER
    np.testing.assert_array_equal(games.pop_finished().returns, states.pop_finished().returns)


def test_a_full_board_without_four_is_a_draw() -> None:
    # Pairs of columns filled so that no four of a kind meet.
    moves = [0, 1, 0, 1, 1, 0, 1, 0, 0, 1, 0, 1, 2, 3, 2, 3, 3, 2, 3, 2, 2, 3, 2, 3]
    moves += [4, 5, 4, 5, 5, 4, 5, 4, 4, 5, 4, 5, 6, 6, 6, 6, 6, 6]
    games = make_two_player("connect_four", 1, 0)
    states = StateVectorEnv(load("connect_four"), "connect_four", 1, 0)
    one, other = games.reset(), states.reset()
    for move in moves:
        assert not one.done[0]
        one, other = games.step(np.array([move])), states.step(np.array([move]))
        same(one, other)
    assert one.done[0] and not one.reward.any()


def test_other_boards_are_played_on_openspiels_states() -> None:
    assert isinstance(make_two_player("connect_four", 1, 0, rows=5), StateVectorEnv)
