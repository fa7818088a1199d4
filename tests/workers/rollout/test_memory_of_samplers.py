"""Tests that samplers carry a policy's memory from step to step and reset it with every episode."""

from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete, MultiBinary

import envs
from agents import build_algorithm, build_policy
from agents.networks import Heads, Network
from agents.policies import Policy
from agents.policies.categorical import Categorical
from workers.evaluation.cell_games import Uniform, play
from workers.rollout.games.selfplay_sampler import MatchSampler, Opponent
from workers.rollout.vector_sampler import VectorSampler
from workers.runtime.trained import Trained

pytestmark = pytest.mark.usefixtures("one_thread")
GRU = {"hidden_sizes": [8], "core": {"name": "gru", "size": 8}, "policy_gain": 1.0}
LEDUC = "openspiel:leduc_poker"


def test_an_unroll_reproduces_a_segment_of_a_policy_with_a_memory():
    vector_env = envs.make_vector("CartPole-v1", 3, 1, max_episode_steps=15)
    policy = build_policy(GRU, vector_env.single_observation_space, vector_env.single_action_space, seed=1)
    sampler = VectorSampler(vector_env, policy, 1)
    memory, begins = policy.initial_memory(3), np.zeros((1, 3), bool)
    for _ in range(2):
        segment = sampler.collect(40)
        ended = segment.terminated | segment.truncated
        assert segment.truncated.any()
        begins = np.concatenate([begins[-1:], ended[:-1]])
        evaluated, memory = policy.unroll(
            torch.from_numpy(segment.observation), memory, torch.from_numpy(begins), torch.from_numpy(segment.action)
        )
        np.testing.assert_allclose(evaluated.log_prob.detach(), segment.extras["log_prob"], atol=1e-5)
        np.testing.assert_allclose(evaluated.value.detach(), segment.extras["value"], atol=1e-5)
        begins = ended[-1:]


class Counting(Network):
    """A network whose value is its number of decisions in the episode; all actions are equally likely."""

    memory = {"count": ()}

    def __init__(self, heads: Heads) -> None:
        super().__init__()
        self.heads, self.weight = heads, torch.nn.Parameter(torch.zeros(1))

    def step(self, observation, memory):
        count = memory["count"] + 1
        return self.heads.outputs(torch.zeros(len(observation), self.heads.policy), count[:, None]), {"count": count}


def counting(games) -> Policy:
    spaces = games.single_observation_space, games.single_action_space
    return Policy(Categorical(games.num_actions), Counting(Heads({"": games.num_actions})), *spaces, seed=1)


@pytest.mark.parametrize("mirror", [True, False])
def test_every_seat_of_a_turn_based_game_has_a_memory_of_its_own(mirror):
    games = envs.make_two_player(LEDUC, 8, 1)
    sampler = MatchSampler(games, counting(games), 1, unroll_length=6)
    if not mirror:
        sampler.seat(0, Opponent("rival", counting(games)))
    segments = [sampler.collect(16) for _ in range(4)]
    sampler.restart()
    for segment in [*segments, sampler.collect(16)]:
        for t in range(5):
            expected = np.where(segment.terminated[t], 1.0, segment.extras["value"][t] + 1)
            np.testing.assert_array_equal(segment.extras["value"][t + 1], expected)
    assert max(segment.extras["value"].max() for segment in segments) >= 3


def test_players_with_a_memory_are_evaluated():
    games = envs.make_two_player(LEDUC, 8, 1)
    policy = build_policy(GRU, games.single_observation_space, games.single_action_space, seed=1)
    returns = play(games, policy, Uniform(), 3, torch.Generator().manual_seed(1))
    assert returns.shape == (24,) and np.isfinite(returns).all()


def test_a_trained_policy_remembers_its_episode():
    policy = build_policy(GRU, *envs.spaces("CartPole-v1"), 1)
    trained = Trained(policy, "CartPole-v1", {}, False, Path("nowhere"))
    observation = np.ones(4, np.float32)
    memory = policy.initial_memory(1)
    for _ in range(3):
        acted = policy.step(observation[None], memory, "greedy")
        memory = acted.memory
        assert trained.act(observation) == acted.action[0]
    assert trained.memory is not None
    torch.testing.assert_close(trained.memory["policy.h"], memory["policy.h"])
    trained.begin()
    assert trained.memory is None


class Keys(gymnasium.Env):
    """Random images, and a reward for each key that is pressed."""

    observation_space, action_space = Box(0, 255, (3, 8, 8), np.uint8), MultiBinary(4)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self.observation_space.sample(), {}

    def step(self, action):
        assert self.action_space.contains(action)
        self.steps += 1
        return self.observation_space.sample(), float(action.sum()), self.steps == 9, False, {}


@pytest.mark.parametrize(
    ("env_id", "network"),
    [
        ("Taxi-v4", {"hidden_sizes": [8]}),
        (f"{__file__}:Keys", {"name": "impala_resnet", "channels": [2], "hidden_size": 8}),
    ],
    ids=["taxi", "keys"],
)
def test_ppo_learns_from_other_spaces_than_boxes(env_id, network):
    vector_env = envs.make_vector(env_id, 2, 1)
    policy = build_policy(network, vector_env.single_observation_space, vector_env.single_action_space, seed=1)
    segment = VectorSampler(vector_env, policy, 1).collect(24)
    assert segment.observation.dtype == (np.uint8 if len(segment.observation.shape) == 5 else np.int64)
    metrics = build_algorithm("ppo", {"minibatch_size": 16, "epochs": 2}, policy, 1).update([segment]).metrics
    assert all(np.isfinite(value) for name, value in metrics.items() if name != "explained_variance")
    assert segment.action.shape == ((24, 2) if isinstance(policy.action_space, Discrete) else (24, 2, 4))
