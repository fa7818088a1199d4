import sys

import numpy as np
import pettingzoo
import pytest
from gymnasium import spaces
from pettingzoo import ParallelEnv

import envs
from envs.games.pettingzoo_games import AECVectorEnv
from warren.errors import ConfigurationError, UnknownName

CLASSIC = ["connect_four_v3", "tictactoe_v3", "leduc_holdem_v4", "texas_holdem_v4", "chess_v6"]


def test_random_play_agrees_with_pettingzoos_own_loop_at_every_step():
    for name in CLASSIC:
        games = envs.make_two_player(f"pettingzoo:{name}", 1, seed=5)
        env = pettingzoo.make("aec", f"classic/{name.replace('_v', '-v')}")
        turn, done, returns = games.reset(), False, np.zeros(2)
        env.reset(seed=int(games.chance.seeds[0]) % 2**31)
        generator = np.random.default_rng(0)
        moves = 0
        while not done and moves < 60:
            agent = env.agent_selection
            observation, _, terminated, truncated, _ = env.last()
            assert not terminated and not truncated
            assert turn.to_move[0] == env.possible_agents.index(agent)
            assert np.array_equal(turn.observation[0], observation["observation"].astype(np.float32))
            assert np.array_equal(turn.action_mask[0], observation["action_mask"].astype(bool))
            action = int(generator.choice(np.flatnonzero(turn.action_mask[0])))
            turn = games.step(np.array([action]))
            env.step(action)
            moves += 1
            returns += turn.reward[0]
            done = bool(turn.done[0])
        if not done:
            assert name == "chess_v6"  # random chess hardly ever ends
            continue
        expected = np.zeros(2)  # PettingZoo's sum for each agent, read as each steps out
        while env.agents:
            _, reward, terminated, truncated, _ = env.last()
            assert terminated or truncated
            expected[env.possible_agents.index(env.agent_selection)] = reward
            env.step(None)
        # The last mover's earlier rewards were cleared at its move; these games reward only the end.
        assert np.array_equal(returns, expected)


def test_rewards_go_to_the_winning_player():
    games = envs.make_two_player("pettingzoo:connect_four_v3", 1, seed=0)
    games.reset()
    for move in [0, 1, 0, 1, 0, 1]:
        assert not games.step(np.array([move])).done[0]
    turn = games.step(np.array([0]))  # four of player 0's in the first column
    assert turn.done[0] and not turn.truncated[0]
    assert turn.reward.tolist() == [[1, -1]]
    assert turn.to_move[0] == 0 and turn.action_mask[0].all() and not turn.observation[0].any()  # a new board


def test_parallel_games_hide_the_first_move_from_the_second_player():
    games = envs.make_two_player("pettingzoo:rps_v2?max_cycles=2", 3, seed=0)
    nothing = [0, 0, 0, 1]  # one-hot: the opponent has not moved yet
    assert games.reset().observation.tolist() == [nothing] * 3
    turn = games.step(np.array([0, 1, 2]))
    assert turn.to_move.tolist() == [1, 1, 1] and turn.observation.tolist() == [nothing] * 3
    assert not turn.reward.any()
    turn = games.step(np.array([1, 1, 1]))  # paper, against rock, paper, scissors
    assert turn.reward.tolist() == [[-1, 1], [0, 0], [1, -1]]
    assert turn.observation.tolist() == [[0, 1, 0, 0]] * 3  # player 0 sees paper
    turn = games.step(np.array([0, 0, 0]))
    assert not turn.reward.any()  # the first round's reward is not paid twice
    assert turn.observation.argmax(axis=1).tolist() == [0, 1, 2]
    turn = games.step(np.array([0, 0, 0]))
    assert turn.done.all() and turn.truncated.all()  # this game ends only by its number of rounds
    finished = games.pop_finished()
    assert finished.returns.tolist() == [[-1, 1], [0, 0], [1, -1]] and finished.length.tolist() == [4, 4, 4]


class Duel(ParallelEnv):
    """Each agent sees a number of its own; the higher choice wins; games terminate and are never truncated."""

    metadata = {"name": "duel"}

    def __init__(self, agents=2, prize=1.0):
        self.possible_agents = [f"duellist_{i}" for i in range(agents)]
        self.prize = prize
        self.render_mode = None

    def observation_space(self, agent):
        return spaces.Box(0, 1, (1,), np.float32)

    def action_space(self, agent):
        return spaces.Discrete(3, start=5)

    def reset(self, seed=None, options=None):
        assert seed is not None
        self.agents = list(self.possible_agents)
        self.draw = np.random.default_rng(seed).random((2, 1)).astype(np.float32)
        masks = {agent: {"action_mask": np.array([1, i, 1], np.int8)} for i, agent in enumerate(self.agents)}
        return dict(zip(self.agents, self.draw, strict=True)), masks

    def step(self, actions):
        first, second = (actions[agent] for agent in self.agents)
        assert {first, second} <= {5, 6, 7}
        rewards = dict(zip(self.agents, self.prize * np.sign([first - second, second - first]), strict=True))
        ends, observations = dict.fromkeys(self.agents, True), dict(zip(self.agents, self.draw, strict=True))
        quiet, infos = dict.fromkeys(self.agents, False), {agent: {} for agent in self.agents}
        self.agents = []
        return observations, rewards, ends, quiet, infos


def duel_alone():
    return Duel(agents=1)


def a_string():
    return "not an environment"


def test_a_users_parallel_game_has_masks_from_infos_and_actions_from_its_start():
    games = envs.make_two_player(f"{__file__}:Duel", 2, seed=3)
    turn = games.reset()
    assert turn.action_mask.tolist() == [[True, False, True]] * 2
    seed = int(games.chance.seeds[0]) % 2**31
    assert turn.observation[0] == np.random.default_rng(seed).random((2, 1)).astype(np.float32)[0]
    turn = games.step(np.array([0, 2]))
    assert turn.action_mask.tolist() == [[True, True, True]] * 2
    turn = games.step(np.array([1, 1]))
    assert turn.reward.tolist() == [[-1, 1], [1, -1]] and turn.done.all() and not turn.truncated.any()


class NamedDuel(Duel):
    """A duel with texts for people."""

    def text(self, agent):
        return f"{agent} sees {float(self.draw[self.possible_agents.index(agent), 0]):.2f}"

    def action_text(self, agent, action):
        return f"{agent} plays {action}"


def test_a_users_game_gives_texts_for_people():
    games = envs.make_two_player("examples/nim/nim.py:Nim", 1, 0)
    games.reset()
    assert games.text(0).startswith("15 stones are left") and games.last_text(0) == ""
    for action in (2, 2, 2, 2):
        games.step(np.array([action]))
    assert games.text(0).startswith("3 stones are left")
    assert games.step(np.array([2])).done[0]
    assert games.last_text(0).startswith("0 stones are left") and games.text(0).startswith("15 stones are left")


def test_a_users_parallel_game_names_actions_by_its_own_numbers():
    games = envs.make_two_player(f"{__file__}:NamedDuel", 1, 0)
    turn = games.reset()
    assert games.text(0) == f"duellist_0 sees {turn.observation[0, 0]:.2f}"
    assert games.action_text(0, 2) == "duellist_0 plays 7"
    plain = envs.make_two_player(f"{__file__}:Duel", 1, 0)
    plain.reset()
    assert plain.action_text(0, 2) == "2" and plain.text(0).startswith("[")


def test_every_game_is_dealt_anew_and_the_seed_repeats_them_all():
    def deals(seed):
        games = envs.make_two_player(f"{__file__}:Duel", 2, seed)
        turn, seen = games.reset(), []
        for _ in range(4):
            seen.append(turn.observation.copy())
            games.step(np.zeros(2, int))
            turn = games.step(np.zeros(2, int))
        return np.array(seen)

    assert np.array_equal(deals(1), deals(1))
    assert len(np.unique(deals(1))) == 8
    assert not np.array_equal(deals(1), deals(3))


class Coin(envs.TwoPlayerVectorEnv):
    """A user's vectorised game: player 0 names a side of a coin."""

    def __init__(self, num_envs, seed, sides=2):
        super().__init__("coin", num_envs, (1,), sides)
        self.generator = np.random.default_rng(seed)

    def _reset(self):
        n = self.num_envs
        mask = np.ones((n, self.num_actions), bool)
        return envs.Turn(np.zeros(n, np.int8), np.zeros((n, 1), np.float32), mask, *self._no_outcome())

    def _step(self, action):
        turn = self._reset()
        turn.done[:] = True
        turn.reward[:, 0] = 2 * (action == self.generator.integers(0, self.num_actions, self.num_envs)) - 1
        turn.reward[:, 1] = -turn.reward[:, 0]
        return turn


def test_a_users_vectorised_game_is_used_unchanged():
    games = envs.make_two_player(f"{__file__}:Coin", 100, seed=0, sides=3)
    assert type(games).__name__ == "Coin" and games.num_actions == 3
    games.reset()
    games.step(np.zeros(100, int))
    assert len(games.pop_finished().index) == 100


@pytest.mark.parametrize(
    ("env_id", "kwargs", "message"),
    [
        ("pettingzoo:tictactoe_v3", {"board": 4}, "unexpected keyword argument 'board'"),
        (f"{__file__}:duel_alone", {}, r"has 1 agents \['"),
        (f"{__file__}:a_string", {}, "made a str; a two-player game is a PettingZoo environment"),
        (f"{__file__}:Nothing", {}, "'Nothing' does not exist"),
    ],
)
def test_other_than_two_player_games_are_refused_with_the_reason(env_id, kwargs, message):
    with pytest.raises(ConfigurationError, match=message):
        envs.make_two_player(env_id, 1, seed=0, **kwargs)


def test_an_unknown_name_lists_near_ones_and_a_missing_extra_is_named(monkeypatch):
    with pytest.raises(UnknownName, match="did you mean pettingzoo:connect_four_v3"):
        envs.make_two_player("pettingzoo:connect_for_v3", 1, seed=0)
    monkeypatch.setitem(sys.modules, "pettingzoo.classic.go.go", None)
    with pytest.raises(ConfigurationError, match=r"needs more packages .*: .*bin/pip install 'pettingzoo\[classic\]'"):
        envs.make_two_player("pettingzoo:go_v5", 1, seed=0)


def test_unequal_spaces_are_refused():
    class Lopsided(Duel):
        def action_space(self, agent):
            return spaces.Discrete(3 if agent == "duellist_0" else 4)

    with pytest.raises(ConfigurationError, match="one network plays every side, so they must be equal"):
        AECVectorEnv("lopsided", [Lopsided], seed=0)
