"""PPO's gradient by one call of the library, compared with torch's in float64 for each supported option."""

from __future__ import annotations

import copy
from collections.abc import Collection
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from support.experience import random_trajectory
from torch import Tensor

from agents import Policy, Trajectory, build_algorithm, build_policy
from agents.algorithms.anchors import LESSON, PREFIXES
from agents.algorithms.batches import Minibatch
from agents.algorithms.ppo import PPO
from agents.native import library
from agents.networks.mlp import MLPEncoder
from agents.policies.categorical import ILLEGAL
from warren.errors import NotFinite

STEPS, ACTIONS = 333, 5
NETWORKS: list[dict[str, Any]] = [
    {},
    {"activation": "relu", "hidden_sizes": [33]},
    {"activation": "elu", "hidden_sizes": [20, 30, 10]},
    {"shared": True},
    {"hidden_sizes": []},
    {"normalize_observations": True},
]
SETTINGS: list[dict[str, Any]] = [
    {},
    {"clip_range": 0.01, "entropy_coefficient": 0.05, "value_coefficient": 2.0},
    {"clip_range_value": 0.1},
    {"normalize_advantage": False, "clip_range_value": 1.0},
]
ANCHORED: list[dict[str, Any]] = [
    {"magnet_coefficient": 0.5},
    {"proximal_coefficient": 0.2, "clip_range": 0.05},
    {"teacher_coefficient": 3.0},
    {"teacher_coefficient": 0.3, "magnet_coefficient": 0.1, "proximal_coefficient": 2.0, "entropy_coefficient": 0.02},
]


def made(network: dict[str, Any], settings: dict[str, Any]) -> PPO:
    spaces = Box(-5, 5, (6,), np.float32), Discrete(ACTIONS)
    policy = build_policy({"hidden_sizes": [24, 17], "policy_gain": 1.0, **network}, *spaces, 3)
    policy.take_in(1 + 2 * torch.randn(64, 6, generator=torch.Generator().manual_seed(1)))
    algorithm = build_algorithm("ppo", settings, policy, 1)
    assert isinstance(algorithm, PPO)
    return algorithm


def minibatch(masked: bool, settings: Collection[str] = ()) -> Minibatch:
    """Return a minibatch of STEPS steps, with columns of the anchors whose coefficients are in `settings`."""
    chance = torch.Generator().manual_seed(7)
    action = torch.randint(ACTIONS, (STEPS,), generator=chance)
    mask = None
    if masked:
        mask = torch.rand(STEPS, ACTIONS, generator=chance) < 0.5
        mask[torch.arange(STEPS), action] = True
    columns = {
        "log_prob": -1.6 + 0.3 * torch.randn(STEPS, generator=chance),
        **{name: torch.randn(STEPS, generator=chance) for name in ("value", "target", "advantage")},
    }
    for name, prefix in PREFIXES.items():
        if f"{name}_coefficient" in settings:
            logits = 2 * torch.randn(STEPS, ACTIONS, generator=chance)
            columns[prefix] = logits if mask is None else logits.masked_fill(~mask, ILLEGAL)
    return Minibatch(torch.randn(STEPS, 6, generator=chance), action, mask, columns, {})


def exact(algorithm: PPO, given: Minibatch) -> tuple[Tensor, dict[str, Tensor]]:
    """Return (gradient [P], terms) in float64."""
    other = copy.deepcopy(algorithm.policy).double()
    for module in other.modules():
        if isinstance(module, MLPEncoder):
            module.flat = torch.nn.Identity()  # instead of a cast to float32
    for parameter in other.parameters():
        parameter.grad = None
    double = copy.copy(given)
    double.observation = given.observation.double()
    double.columns = {name: column.double() for name, column in given.columns.items()}
    advantage = double.columns["advantage"]
    if algorithm.config.normalize_advantage:
        advantage = algorithm.standardize(advantage)
    policy, algorithm.policy = algorithm.policy, other
    loss, terms = algorithm._loss(double, advantage, {})
    algorithm.policy = policy
    loss.backward()
    return torch.cat([parameter.grad.flatten() for parameter in other.parameters()]), terms


def at_once(algorithm: PPO, given: Minibatch) -> tuple[Tensor, dict[str, Tensor]] | None:
    gradient = algorithm.descent.parameters.gradient.fill_(7)
    advantage = given.columns["advantage"]
    if algorithm.config.normalize_advantage:
        advantage = algorithm.standardize(advantage)
    by_library = algorithm.by_library(given, given.columns)
    found = None if by_library is None else by_library(given, advantage)
    return None if found is None else (gradient, found[1])


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("settings", SETTINGS + ANCHORED, ids=str)
@pytest.mark.parametrize("network", NETWORKS, ids=str)
def test_the_gradient_and_the_terms_equal_those_in_float64(
    network: dict[str, Any], settings: dict[str, Any], masked: bool, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agents.native.perceptron.A_THREAD", 64)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    algorithm, given = made(network, settings), minibatch(masked, settings)
    gradient, terms = exact(algorithm, given)
    found = at_once(algorithm, given)
    assert found is not None
    assert found[1].keys() == terms.keys()
    assert (found[0] - gradient).abs().max() < 1e-6 * gradient.abs().max()
    for name, term in terms.items():
        torch.testing.assert_close(found[1][name].double(), term.double(), rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize(
    "settings",
    [
        {"target_kl": 0.01},
        {"minibatch_size": 30, "epochs": 3},
        {"gae_lambda": 0.5},
        {"magnet_coefficient": 0.5, "magnet_rate": 0.3, "proximal_coefficient": 0.2},
    ],
    ids=str,
)
def test_updates_by_the_library_equal_torchs(settings: dict[str, Any]) -> None:
    ends, metrics = [], []
    for choice in ("torch", "native"):
        algorithm = made({}, {"learning_rate": 1e-3, **settings})
        data = played(algorithm.policy)
        library.choose(choice)
        algorithm.update([data])
        metrics.append(algorithm.update([data]).metrics)
        ends.append(algorithm.descent.parameters.values.detach().clone())
    torch.testing.assert_close(*ends, rtol=1e-4, atol=1e-6)
    assert metrics[0] == pytest.approx(metrics[1], rel=1e-3, abs=1e-5)


def played(policy: Policy) -> Trajectory:
    library.choose("native")
    return random_trajectory(policy, steps=32, envs=8)


def test_torch_computes_networks_and_losses_that_the_library_cannot() -> None:
    given = minibatch(False)
    assert at_once(made({}, {}), given) is not None
    for network in ({"activation": "silu"}, {"core": {"name": "gru", "size": 4}}, {"normalize_values": True}):
        assert at_once(made(network, {}), given) is None
    taught = minibatch(False, ["teacher_coefficient"])
    assert at_once(made({}, {}), taught) is not None
    assert at_once(made({}, {"teacher_heads": {}}), taught) is None
    taught.columns[LESSON + "head"] = taught.columns.pop(LESSON)
    assert at_once(made({}, {}), taught) is None
    half = made({}, {})
    half.policy.set_learning_precision(torch.bfloat16)
    assert at_once(half, minibatch(False)) is None


@pytest.mark.parametrize("action", [-1, ACTIONS])
def test_an_action_out_of_range_is_left_to_torch(action: int) -> None:
    given = minibatch(False)
    given.action[7] = action
    assert at_once(made({}, {}), given) is None


def test_a_number_that_is_not_finite_is_named_and_changes_nothing() -> None:
    algorithm = made({}, {})
    data = played(algorithm.policy)
    data.extras["log_prob"][3, 2] = -np.inf
    before = algorithm.descent.parameters.values.detach().clone()
    with pytest.raises(NotFinite, match="log_prob"):
        algorithm.update([data])
    assert torch.equal(algorithm.descent.parameters.values.detach(), before)
