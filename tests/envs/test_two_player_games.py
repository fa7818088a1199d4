"""The contract of two-player games, checked for every source."""

import subprocess
import sys

import numpy as np
import pytest

import envs
from envs.two_player.simultaneous import SimultaneousGames
from envs.two_player.vector_env import Turn, TwoPlayerVectorEnv
from warren.errors import ConfigurationError, IllegalAction

GAMES = [
    "openspiel:kuhn_poker",  # on its tree
    "openspiel:leduc_poker",
    "openspiel:connect_four",  # on states
    "openspiel:goofspiel?num_cards=3",  # simultaneous, on its tree
    "openspiel:goofspiel?num_cards=6&returns_type=win_loss",  # simultaneous, on states
    "openspiel:pig",  # chance after moves, on states
    "pettingzoo:tictactoe_v3",
    "pettingzoo:rps_v2?max_cycles=4",  # parallel, truncated, rewards on the way
    "matrix:rps",
    "matrix:spinning_top",
]


def random_actions(turn, generator):
    """Return int64 [N]: a legal action per game, drawn uniformly."""
    return (generator.random(turn.action_mask.shape) * turn.action_mask).argmax(axis=1)


@pytest.mark.parametrize("env_id", GAMES)
def test_turns_have_the_documented_shapes_and_types(env_id):
    games = envs.make_two_player(env_id, 5, seed=0)
    generator = np.random.default_rng(0)
    turn = games.reset()
    shape, num_actions = games.single_observation_space.shape, games.single_action_space.n
    for _ in range(60):
        fields = [
            (turn.to_move, np.int8, (5,)),
            (turn.observation, np.float32, (5, *shape)),
            (turn.action_mask, np.bool_, (5, num_actions)),
            (turn.reward, np.float32, (5, 2)),
            (turn.done, np.bool_, (5,)),
            (turn.truncated, np.bool_, (5,)),
        ]
        for array, dtype, expected in fields:
            assert array.dtype == dtype and array.shape == expected
        assert set(turn.to_move) <= {0, 1}
        assert turn.action_mask.any(axis=1).all()
        assert not (turn.truncated & ~turn.done).any()
        turn = games.step(random_actions(turn, generator))


@pytest.mark.parametrize("env_id", GAMES)
def test_the_same_seed_and_actions_repeat_games_and_another_seed_changes_them(env_id):
    def play(seed):
        games = envs.make_two_player(env_id, 4, seed)
        generator = np.random.default_rng(7)
        turn, seen = games.reset(), []
        for _ in range(50):
            seen += [turn.to_move, turn.observation, turn.action_mask, turn.reward, turn.done]
            turn = games.step(random_actions(turn, generator))
        return seen

    once, again, other = play(3), play(3), play(4)
    assert all(np.array_equal(a, b) for a, b in zip(once, again, strict=True))
    has_chance = any(name in env_id for name in ("poker", "goofspiel", "pig", "spinning"))
    assert has_chance != all(np.array_equal(a, b) for a, b in zip(once, other, strict=True))


@pytest.mark.parametrize("env_id", GAMES)
def test_finished_games_have_the_sum_of_rewards_and_the_number_of_moves(env_id):
    games = envs.make_two_player(env_id, 3, seed=1)
    generator = np.random.default_rng(1)
    turn = games.reset()
    returns, lengths = np.zeros((3, 2)), np.zeros(3, int)
    expected, found = [], []
    for step in range(200):
        turn = games.step(random_actions(turn, generator))
        returns += turn.reward
        lengths += 1
        for i in np.flatnonzero(turn.done):
            expected.append((i, *returns[i], lengths[i]))
            returns[i], lengths[i] = 0, 0
        if step % 17 == 0 or step == 199:  # pop now and then: what is popped is gone
            finished = games.pop_finished()
            found += [
                (i, *both, length)
                for i, both, length in zip(finished.index, finished.returns, finished.length, strict=True)
            ]
    assert len(expected) >= 3
    assert np.allclose(expected, found)
    assert np.allclose(np.array(found)[:, 1], -np.array(found)[:, 2])  # zero-sum
    assert len(games.pop_finished().index) == 0


@pytest.mark.parametrize("env_id", GAMES)
def test_a_reset_drops_the_games_under_way(env_id):
    games = envs.make_two_player(env_id, 2, seed=1)
    generator = np.random.default_rng(1)
    games.step(random_actions(games.reset(), generator))
    turn = games.reset()
    assert not turn.done.any() and not turn.reward.any()
    games.pop_finished()
    length = 0
    while not turn.done[0]:
        turn = games.step(random_actions(turn, generator))
        length += 1
    finished = games.pop_finished()
    assert finished.length[finished.index == 0][0] == length


@pytest.mark.parametrize("env_id", ["openspiel:kuhn_poker", "openspiel:connect_four", "pettingzoo:tictactoe_v3"])
def test_the_id_gives_the_spaces_a_policy_is_built_from(env_id):
    observation_space, action_space = envs.spaces(env_id)
    games = envs.make_two_player(env_id, 1, seed=0)
    assert observation_space == games.single_observation_space
    assert action_space == games.single_action_space


def test_an_illegal_action_is_named_with_the_legal_ones_and_moves_nothing():
    games = envs.make_two_player("openspiel:leduc_poker", 3, seed=0)
    turn = games.reset()  # fold is illegal at first: there is nothing to fold to
    with pytest.raises(IllegalAction, match=r"leduc_poker', game 1: action 0 of player 0 is illegal; legal: 1, 2"):
        games.step(np.array([1, 0, 1]))
    before = [games.history(i) for i in range(3)]
    for wrong in (np.array([1, 3, 1]), np.array([1, -1, 1])):
        with pytest.raises(IllegalAction, match="game 1"):
            games.step(wrong)
    with pytest.raises(IllegalAction, match=r"must be integer \[3\], is float64 \[3\]"):
        games.step(np.ones(3))
    assert [games.history(i) for i in range(3)] == before
    assert games.step(np.argmax(turn.action_mask, axis=1)).to_move.tolist() == [1, 1, 1]


def test_stepping_before_the_first_reset_says_so():
    with pytest.raises(ConfigurationError, match=r"call reset\(\) before step"):
        envs.make_two_player("matrix:rps", 1, seed=0).step(np.zeros(1, np.int64))


def test_a_game_that_is_not_zero_sum_is_refused_when_it_ends():
    class Generous(TwoPlayerVectorEnv):
        def _reset(self):
            return Turn(np.zeros(1, np.int8), np.zeros((1, 1), np.float32), np.ones((1, 2), bool), *self._no_outcome())

        def _step(self, action):
            turn = self._reset()
            turn.reward[:], turn.done[:] = 1, True
            return turn

    games = Generous("generous", 1, (1,), 2)
    games.reset()
    with pytest.raises(ConfigurationError, match="'generous' is not zero-sum: a game ended with returns 1 and 1"):
        games.step(np.zeros(1, np.int64))


class Stones(TwoPlayerVectorEnv):
    """A heap of five stones; taking the last wins. Its attributes have names that its bases once used."""

    def __init__(self, num_envs, seed):
        super().__init__("stones", num_envs, (1,), 2)
        self._steps, self._returns, self._began, self._finished, self._finish, self._check = [None] * 6
        self._rows = None

    def _reset(self):
        self._left, self._mover = np.full(self.num_envs, 5), np.zeros(self.num_envs, np.int8)
        return self._turn(*self._no_outcome())

    def _step(self, action):
        reward, done, truncated = self._no_outcome()
        self._left = self._left - action - 1
        done[:] = self._left <= 0
        reward[done, self._mover[done]], reward[done, 1 - self._mover[done]] = 1, -1
        self._left, self._mover = np.where(done, 5, self._left), np.where(done, 0, 1 - self._mover).astype(np.int8)
        return self._turn(reward, done, truncated)

    def _turn(self, *outcome):
        return Turn(
            self._mover.copy(), self._left[:, None].astype(np.float32), np.ones((self.num_envs, 2), bool), *outcome
        )


class Guess(SimultaneousGames):
    """The first player wins by guessing the second's move; its attributes have such names as well."""

    def __init__(self, num_envs, seed):
        super().__init__("guess", num_envs, (1,), 2)
        self._first = self._any = self._to_move = self._turn = None

    def _turn_of(self, *_):
        raise AssertionError("called by the base")

    def _begin(self, i):
        self._seen[:, i] = 0

    def _move(self, first, second, reward, done, truncated):
        won = np.where(np.array(first) == second, 1, -1)
        reward[:, 0], reward[:, 1], done[:] = won, -won, True


@pytest.mark.parametrize("game", [Stones, Guess])
def test_a_users_game_may_use_any_name_for_its_attributes(game):
    games, generator = game(3, 0), np.random.default_rng(0)
    turn = games.reset()
    for _ in range(40):
        turn = games.step(random_actions(turn, generator))
    finished = games.pop_finished()
    assert len(finished.index) > 20 and (np.abs(finished.returns) == 1).all()


def test_an_id_of_the_wrong_number_of_players_is_refused_with_the_reason():
    with pytest.raises(
        ConfigurationError, match=r"'kuhn_poker' is not a game of two players; .* 'openspiel:kuhn_poker'"
    ):
        envs.make_two_player("kuhn_poker", 1, seed=0)
    with pytest.raises(ConfigurationError, match="is a game of two players"):
        envs.make("openspiel:kuhn_poker")
    with pytest.raises(ConfigurationError, match="is a game of two players"):
        envs.make_vector("matrix:rps", 2, seed=0)
    with pytest.raises(ConfigurationError, match="num_envs=0 of environment 'matrix:rps' must be at least 1"):
        envs.make_two_player("matrix:rps", 0, seed=0)
    with pytest.raises(ConfigurationError, match="'size' must be name=value"):
        envs.make_two_player("matrix:cyclic?size", 1, seed=0)


@pytest.mark.parametrize(
    ("env_id", "remedy", "settings"),
    [
        (
            "gamecore:examples/gamecore/actor.py:CartPole",
            'declare the players in its class, as in sides = ("red", "blue"), or train',
            " sampling=streaming",
        ),
        ("atari:pong", "train", ""),
        ("gym:CartPole-v1", "train", ""),
    ],
)
def test_an_environment_of_one_agent_is_refused_for_a_league(env_id, remedy, settings):
    with pytest.raises(ConfigurationError) as error:
        envs.make_two_player(env_id, 1, seed=0)
    assert str(error.value) == (
        f"environment {env_id!r} is of one agent, and a league trains games of two players; "
        f"{remedy} it without a league: env.id={env_id}{settings}"
    )


def test_a_missing_file_of_a_gamecore_class_is_named() -> None:
    with pytest.raises(ConfigurationError, match=r"actor 'no_such_file.py:Mine': there is no file .*no_such_file.py"):
        envs.make_two_player("gamecore:no_such_file.py:Mine", 1, seed=0)


def test_a_missing_package_is_named_with_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyspiel", None)
    with pytest.raises(ConfigurationError, match=r"'openspiel:kuhn_poker' needs the package open_spiel .*\[games\]"):
        envs.make_two_player("openspiel:kuhn_poker", 1, seed=0)


def test_envs_and_its_matrix_games_need_no_optional_package():
    script = """
import sys
for name in ("pyspiel", "open_spiel", "pettingzoo", "pygame", "scipy"):
    sys.modules[name] = None
import envs
from envs import exploitability
envs.make("CartPole-v1")
envs.make_two_player("matrix:rps", 2, 0).reset()
form = exploitability.load("matrix:rps")
print(exploitability.of(form, exploitability.uniform(form)))
for env_id in ("openspiel:kuhn_poker", "pettingzoo:go_v5"):
    try:
        envs.make_two_player(env_id, 2, 0)
    except envs.registry.ConfigurationError as error:
        print(error)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=True)
    value, *errors = done.stdout.splitlines()
    assert float(value) == pytest.approx(0, abs=1e-12)
    assert "needs the package open_spiel" in errors[0] and "needs the package pettingzoo" in errors[1]
