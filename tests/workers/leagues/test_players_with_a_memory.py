"""Tests of players with a memory: their trajectories, their frozen opponents and their exploitability."""

import numpy as np
import pytest
import torch

import envs
from agents import Trajectory, build_policy
from agents.algorithms.batches import Batch
from agents.trajectories import concatenate
from envs import Turn, TwoPlayerVectorEnv, exploitability
from workers.config.league import LeagueConfig
from workers.evaluation.cell_games import Uniform, play
from workers.evaluation.scores import table
from workers.leagues.local import LocalLeague
from workers.rollout.games.selfplay_sampler import MatchSampler, Opponent

pytestmark = pytest.mark.usefixtures("one_thread")
LEDUC = "openspiel:leduc_poker"
LSTM = {"hidden_sizes": [], "core": {"name": "lstm", "size": 16}, "policy_gain": 1.0}


class Recall(TwoPlayerVectorEnv):
    """Seat 1 sees seat 0's first move only at its own first decision, and wins by repeating it at its second."""

    max_return = 1.0

    def __init__(self, num_envs: int, seed: int) -> None:
        super().__init__("recall", num_envs, (4,), 2)
        self.moves, self.first = np.zeros(num_envs, np.int64), np.zeros(num_envs, np.int64)

    def _reset(self) -> Turn:
        self.moves[:] = 0
        return self._turn_now(*self._no_outcome())

    def _step(self, action: np.ndarray) -> Turn:
        reward, done, truncated = self._no_outcome()
        self.first = np.where(self.moves == 0, action, self.first)
        done[:] = self.moves == 3
        won = np.where(action == self.first, 1.0, -1.0)
        reward[:, 1], reward[:, 0] = np.where(done, won, 0.0), np.where(done, -won, 0.0)
        self.moves = np.where(done, 0, self.moves + 1)
        return self._turn_now(reward, done, truncated)

    def _turn_now(self, reward: np.ndarray, done: np.ndarray, truncated: np.ndarray) -> Turn:
        observation = np.zeros((self.num_envs, 4), np.float32)
        shown = self.moves == 1
        observation[shown, self.first[shown]] = 1.0
        observation[:, 2], observation[:, 3] = self.moves == 2, self.moves == 3
        mask = np.ones((self.num_envs, 2), np.bool_)
        return Turn((self.moves % 2).astype(np.int8), observation, mask, reward, done, truncated)


def league(network: dict) -> LocalLeague:
    return LocalLeague(
        LeagueConfig.from_dict(
            {
                "env": f"{__file__}:Recall",
                "network": network,
                "algorithm": {
                    "name": "ppo", "learning_rate": 0.01, "epochs": 4, "minibatch_size": 256, "gamma": 1.0,
                    "entropy_coefficient": 0.05,
                },
                "players": {
                    "main": {
                        "kind": "main_agent",
                        "config": {"checkpoint_min_steps": 4000, "checkpoint_max_steps": 4000},
                    }
                },
                "games": 64,
                "tables": 2,
                "unroll_length": 8,
                "lanes": 64,
                "match_games": 64,
                "period_steps": 2000,
                "evaluation_share": 0.0,
                "evaluation_games": 64,
            }
        )
    )  # fmt: skip


def won_by_recall(one: LocalLeague) -> float:
    """Return the main agent's mean return in seat 1 against uniform play."""
    games = envs.make_two_player(f"{__file__}:Recall", 256, 1)
    return -float(play(games, Uniform(), one.trainees["main"].policy, 2, torch.Generator().manual_seed(1)).mean())


def test_a_league_player_with_a_memory_learns_what_one_without_cannot() -> None:
    remembering = league(LSTM)
    rounds = 0
    while won_by_recall(remembering) < 0.8:
        for _ in range(10):
            remembering.round()
        rounds += 10
        assert rounds < 300, won_by_recall(remembering)
    while len(remembering.frozen) < 2:  # a frozen opponent has a memory too
        remembering.round()
    assert any(policy.has_memory for policy in remembering.frozen.values())
    other = league({"hidden_sizes": [16]})
    for _ in range(rounds):
        other.round()
    assert abs(won_by_recall(other)) < 0.2


@pytest.mark.parametrize("core", ["lstm", "gru", "transformer"])
@pytest.mark.parametrize("mirror", [True, False])
def test_an_unroll_reproduces_the_decisions_of_turn_based_games(core: str, mirror: bool) -> None:
    games = envs.make_two_player(LEDUC, 8, 1)
    spaces = games.single_observation_space, games.single_action_space
    network = {"hidden_sizes": [8], "core": {"name": core, "size": 16}, "policy_gain": 1.0}
    policy = build_policy(network, *spaces, 1)
    sampler = MatchSampler(games, policy, 1, unroll_length=5, max_age=3)
    if not mirror:
        sampler.seat(0, Opponent("rival", build_policy(network, *spaces, 2)))
    collected = []
    for version in (0, 1, 2, 9, 10):  # at 9 all unfinished trajectories are too old: games go on in new ones
        sampler.load(policy.state_dict(), version)
        collected.append(Trajectory.from_dict(sampler.collect(12).to_dict()))
    assert sampler.pop_expired() > 0
    trajectory = concatenate(collected)
    assert any((part != 0).any() for part in trajectory.memory.values()), "some begin within a game"
    batch = Batch(policy, [trajectory])
    said, _ = policy.unroll(batch.observation, batch.memory, batch.begins, batch.action, batch.action_mask)
    np.testing.assert_allclose(said.log_prob.detach(), trajectory.extras["log_prob"], atol=1e-5)
    np.testing.assert_allclose(said.value.detach(), trajectory.extras["value"], atol=1e-5)


def test_exploitability_tables_match_the_play_of_a_player_with_a_memory() -> None:
    form = exploitability.load(LEDUC)
    games = envs.make_two_player(LEDUC, 64, 3)
    spaces = games.single_observation_space, games.single_action_space
    one, other = (build_policy(LSTM, *spaces, seed) for seed in (1, 2))
    for policy in (one, other):
        for parameter in policy.parameters():
            parameter.data.mul_(3.0)
    tables = [table(form, policy) for policy in (one, other)]
    np.testing.assert_allclose(tables[0].sum(1), 1.0, atol=1e-6)
    plans = [form.plans(each) for each in tables]
    returns = play(games, one, other, 40, torch.Generator().manual_seed(1))
    error = returns.std() / np.sqrt(len(returns))
    assert abs(returns.mean() - form.payoff(plans[0][0], plans[1][1])) < 4 * error
