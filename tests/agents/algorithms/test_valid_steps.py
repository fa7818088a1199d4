"""Invalid steps, in which no agent decided: their contents change no weight, moment or count."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete

from agents import Batch, Trajectory, build_algorithm, build_policy
from agents.algorithms.transitions import transitions
from agents.trajectories import concatenate
from warren.errors import WireError

STEPS, SLOTS = 12, 6
NETWORKS: dict[str, dict[str, Any]] = {
    "mlp": {"normalize_observations": True, "normalize_values": True},
    "gru": {"core": {"name": "gru", "size": 4}, "normalize_observations": True, "normalize_values": True},
}
ALGORITHMS: dict[str, dict[str, Any]] = {
    "ppo": {"minibatch_size": 24, "epochs": 2, "scale_rewards": True},
    "a2c": {"normalize_advantage": True, "scale_rewards": True},
    "impala": {"upgo_coefficient": 0.5, "scale_rewards": True},
    "appo": {"minibatch_size": 24, "epochs": 2},
    "bc": {"minibatch_size": 12, "epochs": 2},  # with a memory: one slot per minibatch
}


def policy_of(network: str) -> Any:
    return build_policy({"hidden_sizes": [8], **NETWORKS[network]}, Box(-9, 9, (3,), np.float32), Discrete(4), 1)


def trajectory_of(policy: Any, valid: np.ndarray, seed: int = 0, garbage: int = 1) -> Trajectory:
    """Return random steps; those that are not `valid` (bool [T, N]) hold values drawn by `garbage`."""
    slots = valid.shape[1]
    leaves = valid & ~np.concatenate([valid[1:], np.ones_like(valid[:1])])  # the last step before an invalid one
    arrays: list[dict[str, np.ndarray]] = []
    for generator in (np.random.default_rng(seed), np.random.default_rng(100 + garbage)):
        truncated = generator.random(valid.shape) < 0.1
        arrays.append({
            "observation": generator.normal(size=(*valid.shape, 3)).astype(np.float32),
            "action": generator.integers(0, 4, valid.shape),
            "reward": generator.normal(size=valid.shape).astype(np.float32),
            "log_prob": np.log(generator.uniform(0.2, 0.3, valid.shape)).astype(np.float32),
            "value": generator.normal(size=valid.shape).astype(np.float32),
            "truncated": truncated,
            "terminated": ~truncated & (generator.random(valid.shape) < 0.2),
            "cut": np.where(truncated, generator.normal(size=valid.shape), 0).astype(np.float32),
        })  # fmt: skip
    real, other = arrays

    def mixed(name: str) -> np.ndarray:
        mask = valid.reshape(*valid.shape, *[1] * (real[name].ndim - 2))
        return np.where(mask, real[name], other[name])

    last = np.random.default_rng(seed + 1).normal(size=(slots, 3)).astype(np.float32)
    return Trajectory(
        observation=mixed("observation"), action=mixed("action"), reward=np.where(valid, mixed("reward"), 0),
        terminated=mixed("terminated") | ~valid | (leaves & ~mixed("truncated")), truncated=mixed("truncated"),
        extras={"log_prob": mixed("log_prob"), "value": mixed("value")},
        last={"observation": last, "value": last[:, 0].copy()}, cut={"value": mixed("cut")},
        version=np.zeros(slots, np.int64), episodes=np.zeros((0, 2), np.float32),
        memory={name: np.zeros((slots, *shape), np.float32) for name, shape in policy.network.memory.items()},
        valid=valid, group=np.arange(slots) // 3,
    )  # fmt: skip


def trained(name: str, network: str, trajectories: list[Trajectory], policy: Any) -> tuple[dict[str, Any], Any]:
    algorithm: Any = build_algorithm(name, ALGORITHMS[name], policy, 3)
    metrics = algorithm.update(trajectories).metrics
    return policy.state_dict() | algorithm.state()[0], (metrics, algorithm.steps)


def same(one: tuple[dict[str, Any], Any], other: tuple[dict[str, Any], Any]) -> None:
    assert one[0].keys() == other[0].keys()
    for name in one[0]:
        torch.testing.assert_close(one[0][name], other[0][name], rtol=1e-5, atol=1e-6, msg=name)
    assert one[1][0] == pytest.approx(other[1][0], rel=1e-4, abs=1e-5) and one[1][1] == other[1][1]


def some_valid() -> np.ndarray:
    valid = np.random.default_rng(5).random((STEPS, SLOTS)) < 0.7
    valid[0, :] = True
    valid[7:, 1] = False  # an agent that died
    return valid


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("name", ALGORITHMS)
def test_nothing_is_learned_from_invalid_steps(name: str, network: str, one_thread: None) -> None:
    both = []
    for garbage in (1, 2):
        policy = policy_of(network)
        both.append(trained(name, network, [trajectory_of(policy, some_valid(), garbage=garbage)], policy))
    same(*both)
    assert both[0][1][1] == some_valid().sum()


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("name", ALGORITHMS)
def test_slots_without_valid_steps_have_no_effect(name: str, network: str, one_thread: None) -> None:
    valid = np.ones((STEPS, SLOTS), bool)
    valid[:, 3:] = False
    policy, again = policy_of(network), policy_of(network)
    whole = trajectory_of(policy, valid)
    few = replace(whole.slots(slice(3)), valid=None, group=None)
    same(trained(name, network, [whole], policy), trained(name, network, [few], again))


BOX = Box(-1, 1, (2,), np.float32)
GREEDY = {"discrete_actions": {"greedy": True}}
STATE_AND_AGENT = {
    "observation": Box(-9, 9, (3,), np.float32),
    "state": Box(-9, 9, (3,), np.float32),
    "agent": Discrete(3),
}
OFF_POLICY: dict[str, tuple[Any, dict[str, Any], dict[str, Any]]] = {
    "dqn": (Discrete(4), GREEDY, {"n_steps": 3}),
    "sac": (Discrete(4), {}, {"n_steps": 3}),
    "sac of a box": (BOX, {"box_actions": {"squashed": True, "state_std": True}}, {}),
    "td3": (BOX, {"box_actions": {"deterministic": True}}, {"policy_every": 1}),
    "ddpg": (BOX, {"box_actions": {"deterministic": True}}, {}),
    "r2d2": (Discrete(4), {**GREEDY, "core": {"name": "gru", "size": 4}}, {"burn_in": 1, "learned": 3, "n_steps": 2}),
    "qmix": (Discrete(4), {**GREEDY, "privileged": ["state"]}, {"learned": 4}),
}


def learner_of(case: str) -> Any:
    actions, network, settings = OFF_POLICY[case]
    seen: Any = Dict(STATE_AND_AGENT) if case == "qmix" else STATE_AND_AGENT["observation"]
    more = {"hidden_sizes": [8], "value": False, "normalize_observations": True}
    return build_algorithm(case.split()[0], settings, build_policy({**more, **network}, seen, actions, 1), 3)


def drawn_of(policy: Any, valid: np.ndarray, garbage: int = 1) -> Trajectory:
    """Return such steps as a replay draws them: without the actors' extras, with the observations at cuts."""
    drawn = trajectory_of(policy, valid, garbage=garbage)
    at = np.argwhere(drawn.truncated & ~drawn.terminated)
    generator = np.random.default_rng(7)
    real, other = generator.normal(size=(*valid.shape, 2)), np.full((*valid.shape, 2), garbage)
    box = np.where(valid[..., None], real, other).clip(-1, 1).astype(np.float32)

    def seen(observation: np.ndarray) -> Any:
        agent = np.broadcast_to(np.arange(observation.shape[-2]) % 3, observation.shape[:-1])
        return {"observation": observation, "state": 2 * observation, "agent": agent.astype(np.int64)}

    at_cuts = generator.normal(size=(len(at), 3)).astype(np.float32)
    of_team = isinstance(policy.observation_space, Dict)
    drawn = replace(
        drawn,
        action=box if isinstance(policy.action_space, Box) else drawn.action, extras={}, cut={},
        observation=seen(drawn.observation) if of_team else drawn.observation,
        last={"observation": seen(drawn.last["observation"]) if of_team else drawn.last["observation"]},
    )  # fmt: skip
    drawn.cuts = at, {"observation": seen(at_cuts) | {"agent": at[:, 1] % 3} if of_team else at_cuts}
    return drawn


def learned(algorithm: Any, batch: Batch) -> tuple[tuple[dict[str, Any], Any], np.ndarray]:
    updates = [algorithm.update(batch) for _ in range(3)]
    found = algorithm.policy.state_dict() | algorithm.state()[0]
    return (found, (updates[-1].metrics, algorithm.updates)), updates[-1].priorities


@pytest.mark.parametrize("case", OFF_POLICY)
def test_off_policy_algorithms_learn_nothing_from_invalid_steps(case: str, one_thread: None) -> None:
    both, weights = [], np.random.default_rng(1).uniform(0.2, 1, 4 * SLOTS).astype(np.float32)
    for garbage in (1, 2):
        algorithm = learner_of(case)
        length = algorithm.needs.length
        valid = np.random.default_rng(5).random((length, 4 * SLOTS)) < 0.6
        valid[:, 3:6] = False
        both.append(learned(algorithm, Batch([drawn_of(algorithm.policy, valid, garbage)], weights)))
    same(both[0][0], both[1][0])
    np.testing.assert_allclose(both[0][1], both[1][1], rtol=1e-4, atol=1e-6)
    assert (both[0][1][3:6] == 0).all() and both[0][1].any()


@pytest.mark.parametrize("case", sorted(OFF_POLICY.keys() - {"qmix"}))
def test_drawn_slots_without_valid_steps_have_no_effect(case: str, one_thread: None) -> None:
    one, other = learner_of(case), learner_of(case)
    valid = np.ones((one.needs.length, 2 * SLOTS), bool)
    valid[:, SLOTS:] = False
    whole = drawn_of(one.policy, valid)
    few = replace(whole.slots(slice(SLOTS)), valid=None, group=None)
    found, expected = learned(one, Batch([whole])), learned(other, Batch([few]))
    same(found[0], expected[0])
    np.testing.assert_allclose(found[1], [*expected[1], *[0] * SLOTS], rtol=1e-4, atol=1e-6)


def test_invalid_steps_give_no_transition() -> None:
    policy, valid = policy_of("mlp"), np.ones((1, SLOTS), bool)
    valid[0, 2] = False
    drawn = replace(trajectory_of(policy, valid), truncated=np.zeros((1, SLOTS), bool))
    found = transitions(policy, [drawn], 0.9)
    assert found.weights.tolist() == [1] * 5
    assert found.priorities(torch.arange(1.0, 6)).tolist() == [1, 2, 0, 3, 4, 5]
    weighted = Batch([drawn], np.arange(SLOTS, dtype=np.float32))
    assert transitions(policy, weighted, 0.9).weights.tolist() == [0, 1, 3, 4, 5]


def test_a_trajectory_counts_its_valid_steps_and_keeps_groups_apart_when_joined() -> None:
    policy, valid = policy_of("mlp"), some_valid()
    one = trajectory_of(policy, valid)
    both = concatenate([one, one])
    assert one.num_steps == valid.sum() and both.num_steps == 2 * valid.sum()
    assert both.group.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]
    assert both.slots(np.array([0, 7])).valid.tolist() == valid[:, [0, 1]].tolist()
    again = Trajectory.from_dict(one.to_dict(), policy.spec())
    assert again.valid is one.valid
    with pytest.raises(ValueError, match="with and without valid"):
        concatenate([one, replace(one, valid=None)])


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"valid": np.ones((STEPS, 2), bool)}, r"valid must be bool \[12, 6\], is bool \[12, 2\]"),
        ({"group": np.zeros(SLOTS, np.int32)}, r"group must be int64 \[6\]"),
        ({"valid": np.zeros((STEPS, SLOTS), bool), "terminated": np.ones((STEPS, SLOTS), bool)}, "marks no decision"),
        ({"terminated": np.zeros((STEPS, SLOTS), bool)}, r"terminated must be True at \[.*\], which is not valid"),
    ],
)
def test_wrong_valid_steps_and_groups_are_refused_on_arrival(changes: dict[str, Any], said: str) -> None:
    policy = policy_of("mlp")
    with pytest.raises(WireError, match=said):
        Trajectory.from_dict(trajectory_of(policy, some_valid()).to_dict() | changes, policy.spec())
