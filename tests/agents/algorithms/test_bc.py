"""Behaviour cloning of recorded actions among legal ones, and of a teacher's distributions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete
from support.experience import random_trajectory
from test_batches import CORES, played, recurrent

from agents import Trajectory, build_algorithm, build_policy
from agents.algorithms.bc import RETURN
from agents.policies import Policy
from agents.trajectories import requested
from warren.errors import ConfigurationError

OBSERVATIONS = Box(-1, 1, (4,), np.float32)


def make(space: Any = None, network: dict[str, Any] | None = None, **settings: Any) -> Any:
    policy = build_policy({"hidden_sizes": [16], **(network or {})}, OBSERVATIONS, space or Discrete(3), 3)
    return build_algorithm("bc", {"learning_rate": 0.01, "minibatch_size": 32, **settings}, policy, 3)


def games(policy: Policy, seed: int = 0) -> Trajectory:
    """Return steps whose actions are a function of their observations."""
    trajectory = random_trajectory(policy, seed=seed)
    first = trajectory.observation[..., 0]
    if isinstance(policy.action_space, Discrete):
        return replace(trajectory, action=np.digitize(first, [-0.5, 0.5]))
    return replace(trajectory, action=np.stack([first, -first], -1).clip(-0.9, 0.9))


@pytest.mark.parametrize("space", [Discrete(3), Box(-1, 1, (2,), np.float32)], ids=["discrete", "box"])
def test_recorded_actions_become_likely(space: Any, one_thread: None) -> None:
    algorithm = make(space)
    before = algorithm.update([games(algorithm.policy)]).metrics["likelihood_loss"]
    for seed in range(150):
        metrics = algorithm.update([games(algorithm.policy, seed)]).metrics
    shown = games(algorithm.policy, 1000)
    action = algorithm.policy.step(shown.observation.reshape(-1, 4), mode="greedy").action
    assert metrics["likelihood_loss"] < before - 0.5
    if isinstance(space, Discrete):
        assert (action == shown.action.ravel()).mean() > 0.9
    else:
        assert np.abs(action - shown.action.reshape(-1, 2)).mean() < 0.15


def test_the_loss_is_the_mean_of_minus_log_probabilities_among_legal_actions() -> None:
    algorithm = make(minibatch_size=64, learning_rate=1e-9)
    shown = games(algorithm.policy)
    mask = np.ones((*shown.action.shape, 3), np.bool_)
    mask[..., 2] = shown.action == 2  # action 2 is illegal elsewhere
    logits = algorithm.policy.network.step(torch.from_numpy(shown.observation).flatten(0, 1), {})[0].policy
    logits = logits.detach().masked_fill(~torch.from_numpy(mask).flatten(0, 1), -torch.inf)
    expected = torch.nn.functional.cross_entropy(logits, torch.from_numpy(shown.action).flatten())
    metrics = algorithm.update([replace(shown, action_mask=mask)]).metrics
    assert metrics["likelihood_loss"] == pytest.approx(expected.item(), rel=1e-5)


@pytest.mark.parametrize("core", CORES, ids=lambda core: core["name"])
def test_a_network_with_a_memory_learns_to_imitate(core: dict[str, Any]) -> None:
    policy = recurrent(core)
    algorithm = build_algorithm("bc", {"learning_rate": 0.01}, policy, 1)
    shown = played(policy)
    losses = [algorithm.update([shown]).metrics["likelihood_loss"] for _ in range(30)]
    assert losses[-1] < losses[0] - 0.1


def test_the_value_learns_the_returns_of_the_games_by_its_coefficient() -> None:
    found = []
    for coefficient in (0.0, 1.0):
        algorithm = make(value_coefficient=coefficient, network={"shared": False, "normalize_values": True})
        for seed in range(60):
            shown = games(algorithm.policy, seed)
            shown.extras[RETURN] = 10 * shown.observation[..., 1]
            metrics = algorithm.update([shown]).metrics
        found.append(metrics["value_loss"])
    assert found[1] < 0.3 * found[0]
    assert "value_loss" not in make().update([games(make().policy)]).metrics


def test_a_teachers_distributions_are_learned_from_any_actions() -> None:
    teacher = build_policy({"hidden_sizes": [8], "policy_gain": 2.0}, OBSERVATIONS, Discrete(3), 9)
    algorithm = make(teacher="it", likelihood_coefficient=0.0)
    with pytest.raises(ConfigurationError, match="teacher 'it' was not loaded"):
        algorithm.update([random_trajectory(algorithm.policy)])
    algorithm.take_teacher(teacher)
    divergence = [
        algorithm.update([random_trajectory(algorithm.policy, seed=seed)]).metrics["teacher_kl"] for seed in range(100)
    ]
    assert divergence[-1] < 0.1 * divergence[0]


def test_bc_requests_no_fields_and_trains_on_own_games_by_a_teacher_alone() -> None:
    provided = {"extras.log_prob", "extras.value", "last.observation", "last.value", "cut.value"}
    taught = make(teacher="it", likelihood_coefficient=0.0).needs
    assert taught.problems("bc", provided, "streaming", 100) == [] and requested(taught.fields) == []
    (problem,) = make(teacher="it").needs.problems("bc", provided, "gathered", 0)
    assert problem.startswith("algorithm: 'bc' learns from recorded games; clone them by python -m workers.imitate, or")


def test_wrong_settings_are_all_named() -> None:
    with pytest.raises(ConfigurationError) as error:
        make(epochs=0, likelihood_coefficient=-1.0, scale_rewards=True)
    assert [problem.partition("=")[0] for problem in error.value.problems] == [
        "likelihood_coefficient", "epochs", "scale_rewards"
    ]  # fmt: skip


SPACES = {
    "discrete": (Discrete(4, start=2), np.array([2, 5, 3])),
    "multi": (MultiDiscrete([3, 2], start=[1, 0]), np.array([[1, 0], [3, 1], [2, 1]])),
    "binary": (MultiBinary((2, 2)), np.array([[[0, 1], [1, 0]]] * 3, np.int8)),
    "box": (Box(-2, 4, (2,), np.float32), np.array([[-2, 4], [0, 1], [3.5, 0]], np.float32)),
}


@pytest.mark.parametrize("name", SPACES)
def test_actions_convert_from_environment_to_policy_and_back(name: str) -> None:
    space, actions = SPACES[name]
    policy = build_policy({}, OBSERVATIONS, space, 1)
    own = policy.own_action(actions)
    np.testing.assert_array_equal(policy.env_action(own), actions)
    likelihood = policy.evaluate(torch.zeros(3, 4), torch.from_numpy(own)).log_prob
    assert likelihood.shape == (3,) and torch.isfinite(likelihood).all()


def test_squashed_actions_come_back_to_within_a_thousandth_at_their_bounds() -> None:
    space, actions = SPACES["box"]
    policy = build_policy({"box_actions": {"squashed": True}}, OBSERVATIONS, space, 1)
    np.testing.assert_allclose(policy.env_action(policy.own_action(actions)), actions, atol=0.004)


def test_an_action_with_equal_bounds_becomes_the_middle_of_the_squashed_range() -> None:
    space = Box(np.array([-1, 2], np.float32), np.array([1, 2], np.float32))
    policy = build_policy({"box_actions": {"squashed": True}}, OBSERVATIONS, space, 1)
    actions = np.array([[0.5, 2], [-0.5, 2]], np.float32)
    own = policy.own_action(actions)
    assert own[:, 1].tolist() == [0, 0]
    np.testing.assert_allclose(policy.env_action(own), actions, atol=1e-6)


def test_dict_actions_are_converted_by_part_and_wrong_ones_are_refused() -> None:
    policy = build_policy({}, OBSERVATIONS, Dict({"a": Discrete(3, start=1), "b": MultiDiscrete([2, 2])}), 1)
    own = policy.own_action({"a": np.array([1, 3]), "b": np.array([[0, 1], [1, 1]])})
    assert own["a"].tolist() == [0, 2] and own["b"].tolist() == [[0, 1], [1, 1]]
    for wrong in (np.array([0, 1]), np.array([1, 4]), np.zeros(2, np.float32), np.zeros((2, 1), np.int64)):
        with pytest.raises(ConfigurationError, match="action "):
            policy.own_action({"a": wrong, "b": np.zeros((2, 2), np.int64)})
