"""Batches: an update sees every step once per epoch, and with a memory whole unrolls from their start."""

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete

from agents import build_policy
from agents.algorithms.batches import Batch
from agents.algorithms.peers import ALONE, cuts
from agents.algorithms.ppo import PPO, PPOConfig
from agents.trajectories import Trajectory

OBSERVATIONS = Box(-1, 1, (3,), np.float32)
CORES = ({"name": "lstm", "size": 8}, {"name": "gru", "size": 8}, {"name": "transformer", "size": 8, "memory": 4})


def recurrent(core, observation_space=OBSERVATIONS, seed=1):
    return build_policy({"hidden_sizes": [8], "core": dict(core)}, observation_space, Discrete(3), seed)


def played(policy, steps=7, slots=4, seed=0):
    """Play `policy` on random observations in episodes that end at random; some began before the trajectory."""
    generator = np.random.default_rng(seed)
    draws = torch.Generator().manual_seed(seed)
    memory = policy.initial_memory(slots)
    observation = generator.normal(size=(steps + 3, slots, 3)).astype(np.float32)
    ended = generator.random((steps + 3, slots)) < 0.2
    found = []
    for step in range(steps + 3):  # the first three come before the trajectory
        before = {name: part.numpy().copy() for name, part in memory.items()}
        acted = policy.step(observation[step], memory, generator=draws)
        found.append((acted, before))
        memory = policy.begin(acted.memory, ended[step])
    shape = (steps, slots)
    return Trajectory(
        observation=observation[3:],
        action=np.stack([acted.action for acted, _ in found[3:]]),
        reward=generator.normal(size=shape).astype(np.float32),
        terminated=ended[3:],
        truncated=np.zeros(shape, bool),
        extras={name: np.stack([acted.extras[name] for acted, _ in found[3:]]) for name in ("log_prob", "value")},
        last={"observation": observation[-1], "value": np.zeros(slots, np.float32)},
        cut={"value": np.zeros(shape, np.float32)},
        version=np.zeros(slots, np.int64),
        episodes=np.zeros((0, 2), np.float32),
        memory=found[3][1],
    )


@pytest.mark.parametrize("core", CORES, ids=lambda core: core["name"])
def test_an_unroll_reproduces_the_outputs_of_acting(core):
    policy = recurrent(core)
    trajectories = [played(policy, slots=4, seed=1), played(policy, slots=3, seed=2)]
    batch = Batch(policy, trajectories)
    columns = {name: batch.column([t.extras[name] for t in trajectories]) for name in ("log_prob", "value")}
    slots = 0
    for part in batch.minibatches(cuts(len(batch), 15, ALONE), torch.randperm(len(batch)), columns):
        said = part.evaluate(policy)
        torch.testing.assert_close(said.log_prob, part.columns["log_prob"], atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(said.value, part.columns["value"], atol=1e-5, rtol=1e-4)
        slots += part.begins.shape[1]
    assert slots == len(batch) == 7 and batch.steps == 49


@pytest.mark.parametrize("core", CORES, ids=lambda core: core["name"])
def test_the_first_ratio_of_an_update_is_one_and_the_core_learns(core):
    policy = recurrent(core)
    before = {name: value.clone() for name, value in policy.state_dict().items()}
    metrics = PPO(policy, PPOConfig(epochs=1, minibatch_size=1000), seed=1).update([played(policy)]).metrics
    assert metrics["approx_kl"] == pytest.approx(0, abs=1e-6) and metrics["clip_fraction"] == 0
    changed = [name for name, value in policy.state_dict().items() if not torch.equal(value, before[name])]
    assert any("core" in name for name in changed)


def test_minibatches_of_dict_observations_hold_each_step_once():
    space = Dict({"near": OBSERVATIONS, "far": OBSERVATIONS})
    policy = build_policy({"hidden_sizes": [8]}, space, Discrete(3), seed=1)
    made = played(build_policy({"hidden_sizes": [8]}, OBSERVATIONS, Discrete(3), seed=1))
    made.observation = {"near": made.observation, "far": -made.observation}
    batch = Batch(policy, [made])
    seen = []
    for part in batch.minibatches(
        cuts(len(batch), batch.at_a_time(10), ALONE),
        torch.randperm(len(batch)),
        {"value": batch.column([made.extras["value"]])},
    ):
        part.evaluate(policy)
        torch.testing.assert_close(part.observation["near"], -part.observation["far"])
        seen.append(part.columns["value"])
    assert [len(value) for value in seen] == [9, 9, 10]
    assert torch.cat(seen).sort().values.tolist() == sorted(made.extras["value"].ravel().tolist())


@pytest.mark.parametrize("core", [{}, {"core": {"name": "gru", "size": 4}}], ids=["steps", "memory"])
def test_a_part_of_the_observation_may_be_empty(core):
    space = Dict({"near": OBSERVATIONS, "none": Box(-1, 1, (0,), np.float32)})
    network = {"hidden_sizes": [8], "normalize_observations": True, **core}
    made = played(build_policy({"hidden_sizes": [8], **core}, OBSERVATIONS, Discrete(3), seed=1))
    empty = np.zeros((*made.reward.shape, 0), np.float32)
    made.observation = {"near": made.observation, "none": empty}
    made.last["observation"] = {"near": made.last["observation"], "none": empty[0]}
    policy = build_policy(network, space, Discrete(3), seed=1)
    metrics = PPO(policy, PPOConfig(epochs=1, minibatch_size=10), seed=1).update([made]).metrics
    assert np.isfinite(metrics["policy_loss"])


def test_unrolls_of_different_lengths_are_refused():
    policy = recurrent(CORES[0])
    with pytest.raises(ValueError, match=r"different lengths T .* \[5, 7\]"):
        Batch(policy, [played(policy, steps=5), played(policy, steps=7)])
