"""Games of more than two players, and of teams."""

import numpy as np
import pyspiel
import pytest
from gymnasium.spaces import Box, Discrete
from pettingzoo import ParallelEnv

import envs
from envs import exploitability
from envs.checking.two_player import _players
from envs.games.pettingzoo_games import AECVectorEnv, as_aec
from warren.errors import ConfigurationError

KUHN = "openspiel:kuhn_poker?players=3"


def random_actions(turn, generator):
    return (generator.random(turn.action_mask.shape) * turn.action_mask).argmax(axis=1)


def test_three_player_kuhn_agrees_with_openspiel_at_every_step():
    games, generator = envs.make_two_player(KUHN, 6, 0), np.random.default_rng(0)
    assert (games.players, games.teams, games.max_return) == (3, ((0,), (1,), (2,)), 4.0)
    turn, ended = games.reset(), 0
    for _ in range(120):
        assert turn.reward.shape == (6, 3) and set(turn.to_move) <= {0, 1, 2}
        action, before = random_actions(turn, generator), [games.history(i) for i in range(6)]
        for i, history in enumerate(before):
            state = pyspiel.load_game("kuhn_poker", {"players": 3}).new_initial_state()
            for move in history:
                state.apply_action(move)
            assert turn.to_move[i] == state.current_player()
            assert np.array_equal(turn.observation[i], state.information_state_tensor())
            state.apply_action(int(action[i]))
            before[i] = state
        turn = games.step(action)
        finished = games.pop_finished()
        assert list(finished.index) == [i for i in range(6) if before[i].is_terminal()]
        for i, returns in zip(finished.index, finished.returns, strict=True):
            assert np.array_equal(returns, before[i].returns())
            ended += 1
    assert ended > 60


def test_exact_solution_of_a_game_of_three_players_is_refused():
    with pytest.raises(ConfigurationError, match="is for 3 players; exact solution is of games of two") as refused:
        exploitability.load(KUHN)
    assert len(refused.value.problems) == 1


class Pairs(ParallelEnv):
    """Two against two, at once: each agent earns the sum of its team's choices; not zero-sum."""

    metadata = {"name": "pairs"}
    possible_agents = ["a0", "b0", "a1", "b1"]
    teams = [["a0", "a1"], ["b0", "b1"]]

    def observation_space(self, agent):
        return Box(0, 1, (4,), np.float32)

    def action_space(self, agent):
        return Discrete(3)

    def reset(self, seed=None, options=None):
        self.agents = list(self.possible_agents)
        return {agent: np.eye(4, dtype=np.float32)[i] for i, agent in enumerate(self.agents)}, {
            a: {} for a in self.agents
        }

    def step(self, actions):
        seen, info = self.reset()
        earned = {
            a: float(actions["a0" if a[0] == "a" else "b0"] + actions["a1" if a[0] == "a" else "b1"]) for a in seen
        }
        self.agents = []
        return seen, earned, dict.fromkeys(seen, True), dict.fromkeys(seen, False), info


def test_teams_of_a_pettingzoo_environment_get_the_mean_of_their_players():
    games = AECVectorEnv("pairs", [lambda: as_aec(Pairs(), "pairs")] * 2, 0)
    assert games.teams == ((0, 2), (1, 3)) and games.team_of.tolist() == [0, 1, 0, 1] and not games.zero_sum
    assert _players(games) == "4 players in 2 teams"
    games.reset()
    for action in ([1, 0], [0, 2], [2, 2], [0, 1]):
        games.step(np.array(action))
    finished = games.pop_finished()
    assert finished.returns.tolist() == [[3, 0, 3, 0], [2, 3, 2, 3]]
    assert games.by_team(finished.returns).tolist() == [[3, 0], [2, 3]]


class Unequal(envs.TurnVectorEnv):
    """Three players, one move: the first gets 2, the others 1 each."""

    def __init__(self, num_envs, seed, teams=None, zero_sum=False):
        super().__init__("unequal", num_envs, (1,), 2, players=3, teams=teams, zero_sum=zero_sum)

    def _turn(self, reward, done, truncated):
        n = self.num_envs
        return envs.Turn(
            np.zeros(n, np.int8), np.zeros((n, 1), np.float32), np.ones((n, 2), bool), reward, done, truncated
        )

    def _reset(self):
        return self._turn(*self._no_outcome())

    def _step(self, action):
        reward, done, truncated = self._no_outcome()
        reward[:], done[:] = [2, 1, 1], True
        return self._turn(reward, done, truncated)


def test_only_games_declared_zero_sum_are_checked_for_it():
    games = Unequal(2, 0)
    games.reset()
    games.step(np.zeros(2, int))
    assert games.pop_finished().returns.tolist() == [[2, 1, 1]] * 2
    games = Unequal(2, 0, zero_sum=True)
    games.reset()
    with pytest.raises(ConfigurationError, match="not zero-sum: a game ended with returns 2 and 1 and 1"):
        games.step(np.zeros(2, int))


@pytest.mark.parametrize("reward", [float("nan"), float("inf")])
@pytest.mark.parametrize("zero_sum", [True, False])
def test_a_game_whose_returns_are_not_finite_is_refused_when_it_ends(reward, zero_sum):
    class Broken(Unequal):
        def _step(self, action):
            turn = super()._step(action)
            turn.reward[1] = [reward, 1, -1]
            turn.reward[0] = 0
            return turn

    games = Broken(2, 0, zero_sum=zero_sum)
    games.reset()
    with pytest.raises(ConfigurationError, match=rf"'unequal': a game ended with returns {reward} and 1 and -1; give"):
        games.step(np.zeros(2, int))


@pytest.mark.parametrize("teams", [[[0, 1]], [[0], [1]], [[0, 1], [1, 2]], [[0, 1, 2]], [[0, 1, 2], []]])
def test_teams_that_do_not_hold_each_player_once_are_refused(teams):
    with pytest.raises(ConfigurationError, match="each player from 0 to 2 once"):
        Unequal(2, 0, teams)
