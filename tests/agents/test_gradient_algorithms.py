"""A2C, IMPALA, APPO and PPO: they learn, resume from their state, and refuse wrong settings."""

from pathlib import Path

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete
from support.experience import ON_POLICY, random_trajectory
from test_batches import CORES, played, recurrent

from agents import build_algorithm, build_policy
from warren.errors import ConfigurationError

ROOT = Path(__file__).resolve().parents[2]
OWN = "examples/algorithms/reinforce.py"

THREE = Discrete(3)
NAMES = ["a2c", "appo", "impala", "ppo"]
FEW = {"appo": {"epochs": 2, "minibatch_size": 20}, "ppo": {"epochs": 2, "minibatch_size": 20}}


def make(name, seed=3, space=THREE, **settings):
    policy = build_policy({"hidden_sizes": [16]}, Box(-1, 1, (4,), np.float32), space, seed)
    return build_algorithm(name, {"learning_rate": 0.02, **FEW.get(name, {}), **settings}, policy, seed)


def weights(algorithm):
    return torch.cat([p.detach().ravel() for p in algorithm.policy.parameters()])


def test_all_on_policy_algorithms_are_tested_here():
    assert ON_POLICY == NAMES


MOVES = Box(-1, 1, (2,), np.float32)


@pytest.mark.parametrize("name", [*NAMES, "bc"])
@pytest.mark.parametrize(
    ("space", "network", "kind"),
    [
        (THREE, {"discrete_actions": {"greedy": True}}, "Greedy"),
        (MOVES, {"box_actions": {"deterministic": True}}, "Deterministic"),
        (Dict({"move": MOVES, "use": THREE}), {"box_actions": {"deterministic": True}}, "Deterministic"),
    ],
    ids=["values", "one action", "a part"],
)
def test_a_policy_whose_actions_have_no_probabilities_is_refused(name, space, network, kind):
    policy = build_policy({"hidden_sizes": [16], **network}, Box(-1, 1, (4,), np.float32), space, 1)
    with pytest.raises(ConfigurationError, match=f"algorithm: '{name}' changes the probabilities .* and a {kind} over"):
        build_algorithm(name, {}, policy, 1)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("space", [Discrete(3), Box(-1, 1, (2,), np.float32)], ids=["discrete", "box"])
def test_rewarded_actions_become_likely(name, space, one_thread):
    algorithm = make(name, space=space, entropy_coefficient=0.0, max_grad_norm=1.0)
    for seed in range(40):
        trajectory = random_trajectory(algorithm.policy, steps=16, envs=8, seed=100 * seed)
        trajectory.terminated[:], trajectory.truncated[:] = True, False  # a bandit
        wanted = trajectory.action == 2 if isinstance(space, Discrete) else -np.square(trajectory.action - 0.7).sum(-1)
        trajectory.reward[:] = wanted
        algorithm.update([trajectory])
    observation = np.random.default_rng(0).uniform(-1, 1, (200, 4)).astype(np.float32)
    action = algorithm.policy.step(observation, mode="greedy").action
    if isinstance(space, Discrete):
        assert (action == 2).mean() > 0.95
    else:
        assert np.abs(action - 0.7).mean() < 0.25


@pytest.mark.parametrize("name", NAMES)
def test_training_resumes_exactly_from_its_state(name):
    one, other = make(name), make(name, seed=8)
    one.update([random_trajectory(one.policy, seed=1)])
    other.policy.load_state_dict(one.policy.state_dict())
    other.load_state(*one.state())
    for seed in (2, 3):
        trajectory = random_trajectory(one.policy, seed=seed)
        assert one.update([trajectory]) == other.update([trajectory])
    assert torch.equal(weights(one), weights(other)) and other.steps == 3 * 64


@pytest.mark.parametrize("name", NAMES)
def test_metrics_are_finite_and_the_learning_rate_falls(name):
    algorithm = make(name, anneal_steps=64)
    first, second = (algorithm.update([random_trajectory(algorithm.policy, seed=seed)]).metrics for seed in (1, 2))
    assert all(type(value) is float and np.isfinite(value) for value in first.values())
    assert {"policy_loss", "value_loss", "entropy", "grad_norm", "learning_rate"} <= set(first)
    assert (first["learning_rate"], second["learning_rate"]) == (0.02, 0.0)


@pytest.mark.parametrize("core", CORES, ids=lambda core: core["name"])
@pytest.mark.parametrize("name", NAMES)
def test_the_core_of_a_network_with_a_memory_is_trained(name, core):
    policy = recurrent(core)
    before = {key: value.clone() for key, value in policy.state_dict().items()}
    build_algorithm(name, {}, policy, 1).update([played(policy)])
    assert any("core" in key and not torch.equal(value, before[key]) for key, value in policy.state_dict().items())


@pytest.mark.parametrize("name", ["impala", "appo"])
def test_rho_is_the_ratio_of_current_and_behaviour_probabilities(name):
    algorithm = make(name)
    trajectory = random_trajectory(algorithm.policy, seed=1)
    assert make(name).update([trajectory]).metrics["rho"] == pytest.approx(1.0, abs=1e-5)
    trajectory.extras["log_prob"] = trajectory.extras["log_prob"] + np.float32(np.log(2))  # twice as likely when acting
    assert make(name).update([trajectory]).metrics["rho"] == pytest.approx(0.5, abs=1e-5)


def test_impala_bootstraps_from_the_learners_value():
    algorithm = make("impala", entropy_coefficient=0.0)
    trajectory = random_trajectory(algorithm.policy, seed=1)
    other = random_trajectory(algorithm.policy, seed=1)
    other.last["value"] = other.last["value"] + 100
    first = algorithm.update([trajectory])
    assert make("impala", entropy_coefficient=0.0).update([other]) == first


@pytest.mark.parametrize("name", NAMES)
def test_wrong_settings_are_all_named(name):
    with pytest.raises(ConfigurationError) as error:
        make(name, gamma=2.0, value_coefficient=-1.0)
    assert error.value.problems == [
        f"gamma=2.0 of {name} must be within 0 and 1", f"value_coefficient=-1.0 of {name} must be at least 0"
    ]  # fmt: skip
    algorithm = make(name)
    with pytest.raises(ConfigurationError, match="'gama' does not exist"):
        algorithm.adjust({"gama": 0.9})
    algorithm.adjust({"gamma": 0.5})
    assert algorithm.config.gamma == 0.5 and algorithm.config.learning_rate == 0.02


def test_the_page_shows_the_example_unchanged():
    assert (ROOT / OWN).read_text() in (ROOT / "docs/algorithms.md").read_text()


def test_an_algorithm_from_a_users_file_learns(one_thread):
    algorithm = make(f"{ROOT / OWN}:build")
    for seed in range(40):
        trajectory = random_trajectory(algorithm.policy, steps=16, envs=8, seed=100 * seed)
        trajectory.terminated[:], trajectory.truncated[:] = True, False
        trajectory.reward[:] = trajectory.action == 2
        algorithm.update([trajectory])
    observation = np.random.default_rng(0).uniform(-1, 1, (200, 4)).astype(np.float32)
    assert (algorithm.policy.step(observation, mode="greedy").action == 2).mean() > 0.95


def test_faults_of_a_users_algorithm_are_named(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text("def build(settings, policy, seed): return object()\ndef fails(*_): raise KeyError('lr')\n")
    with pytest.raises(
        ConfigurationError, match="without update, behaviour, adjust, begin_at, state, load_state, needs;"
    ):
        make(f"{path}:build")
    with pytest.raises(ConfigurationError, match=r"mine\.py"):
        make(f"{path}:fails")
    with pytest.raises(ConfigurationError, match="'lerning_rate' does not exist"):
        make(f"{ROOT / OWN}:build", lerning_rate=1.0)


def test_adams_settings_reach_the_optimizer_and_can_be_adjusted():
    policy = build_policy({"hidden_sizes": [8]}, Box(-1, 1, (4,), np.float32), Discrete(2), 1)
    algorithm = build_algorithm("ppo", {"adam_beta1": 0.5, "adam_epsilon": 0.01, "minibatch_size": 16}, policy, 1)
    algorithm.update([random_trajectory(policy)])
    optimizer = algorithm.descent.optimizer
    assert (optimizer.beta1, optimizer.beta2, optimizer.epsilon) == (0.5, 0.999, 0.01)
    algorithm.adjust({"adam_beta2": 0.9})
    algorithm.update([random_trajectory(policy)])
    assert optimizer.beta2 == 0.9
    with pytest.raises(ConfigurationError, match=r"adam_beta1=1\.0 of ppo must be at least 0 and below 1"):
        algorithm.adjust({"adam_beta1": 1.0})
