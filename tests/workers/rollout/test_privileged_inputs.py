"""Tests of a value with inputs that the policy does not see, from the environment to an update."""

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete

import envs
from agents import Trajectory, build_algorithm, build_policy
from agents.operators.losses import explained_variance
from envs import EnvSettings
from workers.rollout.vector_sampler import VectorSampler

pytestmark = pytest.mark.usefixtures("one_thread")
LENGTH = 4
FEW = {"ppo": {"epochs": 4, "minibatch_size": 128}, "impala": {}}


class HiddenLuck(gymnasium.Env):
    """Each step earns the episode's luck, which a player is not shown; the action does nothing."""

    observation_space = Dict({"shown": Box(-1, 1, (2,), np.float32), "luck": Box(-1, 1, (1,), np.float32)})
    action_space = Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps, self.luck = 0, self.np_random.uniform(-1, 1, 1).astype(np.float32)
        return self.observe(), {}

    def observe(self):
        return {"shown": self.np_random.uniform(-1, 1, 2).astype(np.float32), "luck": self.luck}

    def step(self, action):
        self.steps += 1
        return self.observe(), float(self.luck[0]), self.steps == LENGTH, False, {}


def make(network, seed=1):
    vector_env = envs.make_vector(EnvSettings(f"{__file__}:HiddenLuck"), 16, seed)
    spaces = vector_env.single_observation_space, vector_env.single_action_space
    policy = build_policy({"hidden_sizes": [32], **network}, *spaces, seed)
    return VectorSampler(vector_env, policy, seed, "HiddenLuck"), policy


def learned(name, network, updates=15):
    """Train; return (share of the returns' variance that the value explains on new data, the policy)."""
    sampler, policy = make(network)
    algorithm = build_algorithm(name, {**FEW[name], "learning_rate": 0.01, "value_coefficient": 1.0}, policy, 1)
    for _ in range(updates):
        trajectory = Trajectory.from_dict(sampler.collect(16).to_dict(), policy.spec())
        algorithm.update([trajectory])
    new = sampler.collect(8 * LENGTH)
    luck = new.observation["luck"][..., 0]
    left = (LENGTH - 1 - np.arange(8 * LENGTH) % LENGTH)[:, None] + 1  # steps of the episode from here on
    return explained_variance(torch.from_numpy(new.extras["value"]), torch.from_numpy(luck * left)).item(), policy


@pytest.mark.parametrize("name", FEW)
def test_a_value_that_sees_hidden_state_predicts_better_than_one_that_does_not(name):
    # Neither sees the number of steps left, so at most about 0.8 can be explained.
    with_it, policy = learned(name, {"privileged": ["luck"]})
    of_nothing, _ = learned(name, {"hidden_sizes": [32], "name": f"{__file__}:blind"})
    assert with_it > 0.6 and of_nothing < 0.2
    action, _ = policy.act({"shown": np.zeros((3, 2), np.float32)})
    assert action.shape == (3,)


def blind(settings, observation_space, heads, generator):
    """Return a perceptron whose policy and value both see only `shown`."""
    from agents.networks import build_network

    network = build_network(settings, observation_space["shown"], heads, generator)
    step = network.step
    network.step = lambda observation, memory: step(observation["shown"], memory)
    act, value = network.act, network.value
    network.act = lambda observation, memory: act(observation["shown"], memory)
    network.value = lambda observation, memory: value(observation["shown"], memory)
    return network


def test_an_unroll_with_a_memory_reproduces_the_acted_trajectory():
    sampler, policy = make({"privileged": ["luck"], "core": {"name": "gru", "size": 8}})
    sampler.collect(3)
    trajectory = sampler.collect(8)
    assert {name.partition(".")[0] for name in trajectory.memory} == {"policy", "value"}
    algorithm = build_algorithm("ppo", {"epochs": 1, "minibatch_size": 4096, "burn_in": 2}, policy, 1)
    assert abs(algorithm.update([trajectory]).metrics["approx_kl"]) < 1e-6
