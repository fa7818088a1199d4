"""Tests of observations and actions that are Dicts and Tuples, from the environment to an update and back."""

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, Tuple

import envs
from agents import Trajectory, build_algorithm, build_policy
from agents.trajectories import on_policy
from envs import EnvSettings
from tasks.codec.decoder import unpack
from tasks.codec.encoder import pack
from warren.errors import ConfigurationError
from warren.trees import leaves
from workers.rollout.vector_sampler import VectorSampler

pytestmark = pytest.mark.usefixtures("one_thread")
LENGTH = 8  # steps of an episode
FEW = {
    "appo": {"epochs": 4, "minibatch_size": 128},
    "ppo": {"epochs": 4, "minibatch_size": 128},
    "a2c": {},
    "impala": {},
}
RATES = {"ppo": 0.01, "appo": 0.01, "a2c": 0.02, "impala": 0.02}


class Room(gymnasium.Env):
    """Rewards moving as the sign says, gripping what the hand lacks, and leaning as the hand does."""

    observation_space = Dict(
        {"sign": Discrete(3, start=-1), "hand": Tuple([Box(-1, 1, (1,), np.float64), MultiBinary(2)])}
    )
    action_space = Tuple([Discrete(3, start=1), Dict({"grip": MultiBinary(2), "lean": Box(-1, 1, (1,), np.float32)})])

    def __init__(self, broken: bool = False):
        self.broken = broken

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self.observe(), {}

    def observe(self):
        lean = self.np_random.uniform(-1, 1, 1) if not (self.broken and self.steps == 2) else np.array([np.nan])
        self.seen = {
            "sign": int(self.np_random.integers(3)) - 1,
            "hand": (lean, self.np_random.integers(0, 2, 2, np.int8)),
        }
        return self.seen

    def step(self, action):
        assert self.broken or self.action_space.contains(action)
        move, body = action
        lean, held = self.seen["hand"]
        reward = float(move - 2 == self.seen["sign"]) + float(np.mean(body["grip"] != held))
        self.steps += 1
        return self.observe(), reward - float(np.abs(body["lean"] - lean).sum()) / 4, False, self.steps == LENGTH, {}


def make(num_envs=16, seed=1, network=None, **settings):
    vector_env = envs.make_vector(EnvSettings(f"{__file__}:Room", **settings), num_envs, seed)
    spaces = vector_env.single_observation_space, vector_env.single_action_space
    policy = build_policy(network or {"hidden_sizes": [32]}, *spaces, seed)
    return VectorSampler(vector_env, policy, seed, "Room"), policy


def test_a_trajectory_keeps_nested_spaces_and_survives_the_wire():
    sampler, policy = make(num_envs=3)
    trajectory = sampler.collect(20)
    spec = on_policy(policy.observation_space, policy.action_space)
    read = Trajectory.from_dict(unpack(pack(trajectory.to_dict())), spec)
    shapes = {path: (leaf.dtype.name, leaf.shape) for path, leaf in leaves(read.observation)}
    assert shapes == {
        "hand.0": ("float32", (20, 3, 1)), "hand.1": ("int8", (20, 3, 2)), "sign": ("int64", (20, 3))
    }  # fmt: skip
    assert {name: part.shape for name, part in read.action.items()} == {
        "0": (20, 3), "1/grip": (20, 3, 2), "1/lean": (20, 3, 1)
    }  # fmt: skip
    assert read.truncated.any() and (read.cut["value"][read.truncated] != 0).all()


def test_the_same_weights_evaluate_a_nested_trajectory_as_it_was_acted():
    sampler, policy = make()
    trajectory = sampler.collect(12)
    flat = lambda tree: {name: torch.as_tensor(leaf).flatten(0, 1) for name, leaf in tree.items()}  # noqa: E731
    said = policy.evaluate(flat(policy.leaves(trajectory.observation)), flat(trajectory.action))
    np.testing.assert_allclose(said.log_prob.detach(), trajectory.extras["log_prob"].ravel(), atol=1e-5)
    np.testing.assert_allclose(said.value.detach(), trajectory.extras["value"].ravel(), atol=1e-5)
    np.testing.assert_allclose(policy.value(trajectory.last["observation"]), trajectory.last["value"], atol=1e-6)


def test_worker_processes_sample_the_same_trajectories():
    network = {"hidden_sizes": [32], "core": {"name": "gru", "size": 16}}
    collected = [make(num_envs=4, network=network, workers=workers)[0] for workers in (0, 2)]
    ours, theirs = (dict(leaves(sampler.collect(20).to_dict())) for sampler in collected)
    collected[1].vector_env.close()
    for name, array in ours.items():
        np.testing.assert_array_equal(array, theirs[name], err_msg=name)


@pytest.mark.parametrize("name", ["ppo", "a2c", "impala", "appo"])
def test_every_algorithm_learns_from_nested_spaces(name):
    sampler, policy = make()
    algorithm = build_algorithm(name, {"learning_rate": RATES[name], "gamma": 0.0, **FEW[name]}, policy, 1)
    means = []
    # At random: a third of the signs, half of the grips, less a quarter of the distance; at best 2.
    while np.mean(means[-3:] or 0) < 1.2:
        trajectory = sampler.collect(32)
        algorithm.update([trajectory])
        means.append(trajectory.reward.mean())
        assert means[0] < 0.8 and len(means) < 100, means


def test_a_number_that_is_not_finite_is_named_with_its_leaf():
    sampler, _ = make(num_envs=2, kwargs={"broken": True})
    with pytest.raises(ConfigurationError, match=r"'Room': step\(\) gave nan at \[0\] of its observation 'hand.0'"):
        sampler.collect(8)
