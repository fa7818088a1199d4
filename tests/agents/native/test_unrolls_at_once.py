"""A2C's, IMPALA's and APPO's gradients by the library, compared with torch's in float64 for each option."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from support.experience import random_trajectory
from test_ppo_at_once import NETWORKS, minibatch
from torch import Tensor

from agents import Policy, Trajectory, build_algorithm, build_policy
from agents.algorithms.appo import APPO
from agents.algorithms.batches import Batch
from agents.algorithms.impala import IMPALA
from agents.algorithms.magnet import Magnet
from agents.algorithms.one_step import Computed, by_library
from agents.native import library
from agents.native.learning import Loss
from agents.native.sums import sum_from_the_end
from agents.networks.mlp import MLPEncoder
from agents.operators import unrolls
from warren.errors import NotFinite

ACTIONS = 5
ANCHORED = {"teacher_coefficient": 0.3, "magnet_coefficient": 0.2, "entropy_coefficient": 0.02}
ONE_STEP: list[tuple[str, dict[str, Any]]] = [
    ("a2c", {}),
    ("a2c", {"gae_lambda": 0.7, "normalize_advantage": True, "entropy_coefficient": 0.05}),
    ("a2c", {"gamma": 0.9, "value_coefficient": 2.0, **ANCHORED}),
    ("impala", {}),
    ("impala", {"rho_bar": 1.3, "c_bar": 0.7, "lambda_": 0.9, "normalize_advantage": True}),
    ("impala", {"upgo_coefficient": 0.5, "gamma": 0.9}),
    ("impala", {"upgo_coefficient": 0.5, "normalize_advantage": True, "value_coefficient": 2.0, **ANCHORED}),
]
EPOCHS: list[dict[str, Any]] = [
    {},
    {"clip_range": 0.05, "target_clip": 1.1, "entropy_coefficient": 0.05},
    {"normalize_advantage": False, "value_coefficient": 2.0},
    {"proximal_coefficient": 0.2, "magnet_coefficient": 0.3},
]


def policy_of(network: dict[str, Any], seed: int = 3) -> Policy:
    spaces = Box(-5, 5, (6,), np.float32), Discrete(ACTIONS)
    policy = build_policy({"hidden_sizes": [24, 17], "policy_gain": 1.0, **network}, *spaces, seed)
    policy.take_in(1 + 2 * torch.randn(64, 6, generator=torch.Generator().manual_seed(1)))
    return policy


def made(name: str, network: dict[str, Any], settings: dict[str, Any]) -> Any:
    """Return an algorithm; its teacher and magnet, if any, differ from its policy."""
    algorithm: Any = build_algorithm(name, settings, policy_of(network), 1)
    if "magnet_coefficient" in settings:
        algorithm.magnet = Magnet(policy_of(network, 4))
    if "teacher_coefficient" in settings:
        algorithm.take_teacher(policy_of(network, 5))
    return algorithm


def played(masked: bool = False, valid: bool = False) -> list[Trajectory]:
    """Return two trajectories of a policy that differs from the learner's."""
    library.choose("auto")
    found = [random_trajectory(policy_of({}, 6), steps=16, envs=9, seed=seed) for seed in (1, 2)]
    for number, one in enumerate(found):
        chance = np.random.default_rng(number)
        if masked:
            one.action_mask = chance.random((16, 9, ACTIONS)) < 0.5
            np.put_along_axis(one.action_mask, one.action[..., None], True, -1)
        if valid:
            one.valid = chance.random((16, 9)) < 0.7
    return found


def doubled(policy: Policy) -> Policy:
    """Return a copy that computes in float64."""
    other: Any = copy.deepcopy(policy).double()
    leaves = other.leaves
    other.leaves = lambda observation: leaves(observation).double()
    for module in other.modules():
        if isinstance(module, MLPEncoder):
            module.flat = torch.nn.Identity()  # instead of a cast to float32
    for parameter in other.parameters():
        parameter.grad = None
    return other


def wide(one: Trajectory) -> Trajectory:
    """Return a copy with float64 rewards, extras and values at cuts."""
    other = copy.copy(one)
    other.reward = one.reward.astype(np.float64)
    other.extras = {name: part.astype(np.float64) for name, part in one.extras.items()}
    other.cut = {name: part.astype(np.float64) for name, part in one.cut.items()}
    return other


def computed(algorithm: Any, given: list[Trajectory], by_torch: bool) -> Computed | None:
    given = list(algorithm.scaled(given))
    batch = Batch(algorithm.policy, given, algorithm.needs.unrolls)
    rest = []
    if isinstance(algorithm, IMPALA):
        rest = [batch.column([t.extras["log_prob"] for t in given])]
    if by_torch:
        found: Computed = algorithm._by_torch(batch, *rest)
        return found
    config = algorithm.config
    upgo = getattr(config, "upgo_coefficient", 0.0)
    loss = Loss(config.value_coefficient, algorithm.entropy_coefficient, upgo_coefficient=upgo)
    return by_library(algorithm, batch, lambda *of: algorithm._constants(batch, *rest, *of), loss)


def exact(algorithm: Any, given: list[Trajectory]) -> tuple[Tensor, dict[str, Tensor]]:
    """Return (gradient [P], terms) by torch in float64."""
    other = copy.copy(algorithm)
    other.policy = doubled(algorithm.policy)
    other.teacher = None if algorithm.teacher is None else doubled(algorithm.teacher)
    if algorithm.magnet is not None:
        other.magnet = Magnet(doubled(algorithm.magnet.policy))
        other.magnet.policy = doubled(algorithm.magnet.policy)
    found = computed(other, [wide(one) for one in given], by_torch=True)
    assert found is not None
    found.loss.backward()
    return torch.cat([parameter.grad.flatten() for parameter in other.policy.parameters()]), found.terms


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("shape", ["plain", "masked", "valid"])
@pytest.mark.parametrize(("name", "settings"), ONE_STEP, ids=str)
@pytest.mark.parametrize("network", NETWORKS, ids=str)
def test_the_gradient_of_an_unroll_equals_that_in_float64(
    network: dict[str, Any],
    name: str,
    settings: dict[str, Any],
    shape: str,
    threads: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("agents.native.perceptron.A_THREAD", 64)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    algorithm, given = made(name, network, settings), played(shape == "masked", shape == "valid")
    library.choose("torch")
    gradient, terms = exact(algorithm, given)
    library.choose("auto")
    algorithm.descent.parameters.gradient.fill_(7)
    found = computed(algorithm, given, by_torch=False)
    assert found is not None and not found.loss.requires_grad
    error = (algorithm.descent.parameters.gradient - gradient).abs().max()
    assert error < 1e-6 * gradient.abs().max()
    assert found.terms.keys() == terms.keys()
    for key, term in terms.items():
        torch.testing.assert_close(found.terms[key].double(), term.double(), rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("settings", EPOCHS, ids=str)
@pytest.mark.parametrize("network", NETWORKS, ids=str)
def test_the_gradient_of_appo_equals_that_in_float64(
    network: dict[str, Any], settings: dict[str, Any], masked: bool
) -> None:
    algorithm, given = made("appo", network, settings), minibatch(masked, settings)
    assert isinstance(algorithm, APPO)
    given.columns["target_log_prob"] = given.columns["log_prob"] + 0.2 * torch.randn(
        len(given.action), generator=torch.Generator().manual_seed(2)
    )
    advantage = given.columns["advantage"]
    double = copy.copy(given)
    double.observation = given.observation.double()
    double.columns = {key: column.double() for key, column in given.columns.items()}
    other = copy.copy(algorithm)
    other.policy = doubled(algorithm.policy)
    loss, terms = other._loss(double, advantage.double(), {})
    loss.backward()
    gradient = torch.cat([parameter.grad.flatten() for parameter in other.policy.parameters()])
    at_once, how = algorithm.at_once(given), algorithm._by_library(given.columns)
    assert at_once is not None and how is not None
    steps = at_once.steps(given)
    assert steps is not None
    found = at_once.gradient(steps, algorithm._renamed(given.columns, advantage), how)
    assert found is not None
    error = (algorithm.descent.parameters.gradient - gradient).abs().max()
    assert error < 1e-6 * gradient.abs().max()
    assert found[1].keys() == terms.keys()
    for key, term in terms.items():
        torch.testing.assert_close(found[1][key].double(), term.double(), rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("alike", [False, True])
@pytest.mark.parametrize(("name", "settings"), [*ONE_STEP, *(("appo", one) for one in EPOCHS)], ids=str)
def test_updates_of_unrolls_equal_torchs(name: str, settings: dict[str, Any], alike: bool) -> None:
    ends, metrics = [], []
    for choice in ("torch", "native"):
        algorithm, given = made(name, {}, {"learning_rate": 1e-3, **settings}), played(masked=True)
        if alike:  # repeated rows, for which the library keeps no layers
            for one in given:
                one.observation = one.observation[np.arange(16) % 2][:, np.arange(9) % 3]
        library.choose(choice)
        algorithm.update(given)
        metrics.append(algorithm.update(given).metrics)
        ends.append(algorithm.descent.parameters.values.detach().clone())
    torch.testing.assert_close(*ends, rtol=1e-4, atol=1e-6)
    assert metrics[0] == pytest.approx(metrics[1], rel=1e-3, abs=1e-5)


@pytest.mark.parametrize("name", ["a2c", "impala", "appo"])
def test_a_reward_that_is_not_finite_is_named_and_changes_nothing(name: str) -> None:
    algorithm, given = made(name, {}, {}), played()
    given[0].reward[3, 2] = np.inf
    before = algorithm.descent.parameters.values.detach().clone()
    with pytest.raises(NotFinite, match=f"{name}, .* reward is inf" if name != "appo" else name):
        algorithm.update(given)
    assert torch.equal(algorithm.descent.parameters.values.detach(), before)


def test_torch_computes_unrolls_that_the_library_cannot() -> None:
    for name in ("a2c", "impala", "appo"):
        given = played()
        for network in ({"activation": "silu"}, {"normalize_values": True}, {"core": {"name": "gru", "size": 4}}):
            algorithm = made(name, network, {})
            batch = Batch(policy_of({}), given, algorithm.needs.unrolls)
            assert algorithm.at_once(batch) is None
        taught = made(name, {}, {"teacher_coefficient": 1.0, "teacher_heads": {}})
        assert taught.anchored(taught.lessons(Batch(taught.policy, given))) is None


def test_sums_from_the_end_equal_torchs_except_for_gradients_and_float64() -> None:
    chance = torch.Generator().manual_seed(1)
    for shape, of_decay in (((7, 3), (7, 3)), ((5, 4, 2), (5, 4, 1)), ((1, 6), (1, 6)), ((3, 0), (3, 0))):
        term, decay = torch.randn(shape, generator=chance), torch.rand(of_decay, generator=chance)
        found = sum_from_the_end(term, decay)
        assert found is not None
        library.choose("torch")
        torch.testing.assert_close(found, unrolls.sum_from_the_end(term, decay))
        library.choose("auto")
    assert sum_from_the_end(term.requires_grad_(), decay) is None
    assert sum_from_the_end(term.detach().double(), decay) is None
