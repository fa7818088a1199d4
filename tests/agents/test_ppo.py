import math

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from support.experience import random_trajectory
from torch.distributions import Categorical, Independent, Normal

from agents import build_algorithm, build_policy
from agents.algorithms.ppo import PPO, PPOConfig
from agents.native import library
from agents.operators.advantages import generalized_advantage
from warren.errors import ConfigurationError

OBSERVATIONS = Box(-1, 1, (4,), np.float32)
SPACES = {"discrete": Discrete(3), "box": Box(-1, 1, (2,), np.float32)}


def make_policy(kind="discrete", seed=1):
    return build_policy({"hidden_sizes": [16, 16]}, OBSERVATIONS, SPACES[kind], seed)


def weights(policy):
    return torch.cat([p.detach().flatten() for p in policy.parameters()]).clone()


def advantages(trajectory, config):
    return generalized_advantage(
        trajectory.reward, trajectory.extras["value"], trajectory.terminated, trajectory.truncated,
        trajectory.cut["value"], trajectory.last["value"], config.gamma, config.gae_lambda,
    )  # fmt: skip


def reference_step(policy, trajectory, config):
    """Return (parameters, loss terms) after one clipped step of Adam on the whole trajectory, by plain formulas."""
    observation = torch.tensor(trajectory.observation.reshape(-1, 4))
    action = torch.tensor(trajectory.action.reshape(len(observation), *trajectory.action.shape[2:]))
    old_log_prob, old_value = (
        torch.tensor(trajectory.extras["log_prob"].ravel()),
        torch.tensor(trajectory.extras["value"].ravel()),
    )
    advantage = torch.tensor(advantages(trajectory, config).ravel())
    target = advantage + old_value
    (output, value), _ = policy.network.step(observation, {})
    discrete = isinstance(policy.action_space, Discrete)
    distribution = (
        Categorical(logits=output) if discrete else Independent(Normal(output, policy.distribution.log_std.exp()), 1)
    )
    ratio = torch.exp(distribution.log_prob(action) - old_log_prob)
    normal = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    low, high = 1 - config.clip_range, 1 + config.clip_range
    policy_loss = torch.max(-normal * ratio, -normal * torch.clamp(ratio, low, high)).mean()
    value_loss = torch.nn.functional.mse_loss(value, target)
    entropy = distribution.entropy().mean()
    loss = policy_loss + config.value_coefficient * value_loss - config.entropy_coefficient * entropy
    parameters = list(policy.parameters())
    gradients = torch.autograd.grad(loss, parameters)
    norm = math.sqrt(sum(float((g**2).sum()) for g in gradients))
    scale = min(1.0, config.max_grad_norm / (norm + 1e-6))
    new = []
    for parameter, gradient in zip(parameters, gradients, strict=True):
        g = gradient * scale  # in Adam's first step the unbiased moments are g and g^2
        new.append(parameter.detach() - config.learning_rate * g / (g.abs() + 1e-5))
    terms = {"policy_loss": policy_loss, "value_loss": value_loss, "entropy": entropy, "grad_norm": torch.tensor(norm)}
    return torch.cat([p.flatten() for p in new]), {name: term.item() for name, term in terms.items()}


@pytest.mark.parametrize("kind", SPACES)
@pytest.mark.parametrize("max_grad_norm", [0.1, 100.0])
def test_one_minibatch_equals_the_formulas_written_out(kind, max_grad_norm):
    config = PPOConfig(epochs=1, minibatch_size=64, entropy_coefficient=0.05, max_grad_norm=max_grad_norm)
    policy = make_policy(kind)
    trajectory = random_trajectory(policy)
    for (
        parameter
    ) in policy.parameters():  # the behaviour policy is an older one: ratios differ from 1, some are clipped
        parameter.data.add_(0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(2)))
    expected, terms = reference_step(policy, trajectory, config)
    metrics = PPO(policy, config, seed=1).update([trajectory]).metrics
    assert 0 < metrics["clip_fraction"] < 1
    for name, term in terms.items():
        assert metrics[name] == pytest.approx(term, rel=1e-4, abs=1e-6), name
    torch.testing.assert_close(weights(policy), expected, rtol=0, atol=1e-6)


def test_metrics_are_plain_numbers_of_the_stated_names():
    policy = make_policy()
    metrics = PPO(policy, PPOConfig(), seed=1).update([random_trajectory(policy)]).metrics
    assert set(metrics) == {
        "policy_loss", "value_loss", "entropy", "approx_kl", "clip_fraction", "explained_variance", "grad_norm",
        "learning_rate",
    }  # fmt: skip
    assert all(type(value) is float and math.isfinite(value) for value in metrics.values())


def test_each_epoch_sees_every_transition_once_with_unequal_minibatches(monkeypatch):
    policy = make_policy()
    trajectories = [
        random_trajectory(policy, steps=7, envs=3, seed=1),
        random_trajectory(policy, steps=5, envs=2, seed=2),
    ]
    seen = []
    evaluate = policy.evaluate
    monkeypatch.setattr(policy, "evaluate", lambda o, *rest: seen.append(o) or evaluate(o, *rest))
    PPO(policy, PPOConfig(epochs=2, minibatch_size=10), seed=1).update(trajectories)
    assert [len(o) for o in seen] == [7, 8, 8, 8] * 2
    given = np.concatenate([s.observation.reshape(-1, 4) for s in trajectories])
    first, second = (torch.cat(seen[i : i + 4]).numpy() for i in (0, 4))
    for epoch in (first, second):
        np.testing.assert_array_equal(np.sort(epoch, axis=0), np.sort(given, axis=0))
    assert not np.array_equal(first, second)


def test_the_order_of_trajectories_in_a_batch_does_not_matter():
    outcomes = []
    for order in (1, -1):
        policy = make_policy()
        trajectories = [random_trajectory(policy, seed=1), random_trajectory(policy, seed=2)][::order]
        PPO(policy, PPOConfig(epochs=3, minibatch_size=10_000), seed=1).update(trajectories)
        outcomes.append(weights(policy))
    torch.testing.assert_close(*outcomes, rtol=0, atol=1e-4)


def test_a_seed_repeats_an_update_and_another_does_not():
    outcomes = []
    for seed in (1, 1, 2):
        policy = make_policy()
        PPO(policy, PPOConfig(minibatch_size=8), seed).update([random_trajectory(policy)])
        outcomes.append(weights(policy))
    torch.testing.assert_close(outcomes[0], outcomes[1], rtol=0, atol=0)
    assert not torch.equal(outcomes[0], outcomes[2])


def test_read_only_arrays_cause_no_warning(recwarn):
    policy = make_policy()
    trajectory = random_trajectory(policy)
    for value in trajectory.to_dict().values():
        if isinstance(value, np.ndarray):
            value.flags.writeable = False
    PPO(policy, PPOConfig(), seed=1).update([trajectory])
    assert not recwarn.list


def test_an_update_ends_once_target_kl_is_exceeded():
    moved = {}
    for target_kl in (None, 1e-4):
        policy = make_policy()
        before = weights(policy)
        config = PPOConfig(epochs=20, minibatch_size=16, learning_rate=1e-2, target_kl=target_kl)
        metrics = PPO(policy, config, seed=1).update([random_trajectory(policy)]).metrics
        moved[target_kl] = (weights(policy) - before).norm().item()
        assert math.isfinite(metrics["policy_loss"])
    assert 0 < moved[1e-4] < 0.3 * moved[None]


def test_an_update_whose_data_exceeds_target_kl_changes_nothing_and_reports_it():
    policy = make_policy()
    trajectory = random_trajectory(policy)
    trajectory.extras["log_prob"] += (
        np.random.default_rng(0).normal(size=trajectory.extras["log_prob"].shape).astype(np.float32)
    )
    algorithm = PPO(policy, PPOConfig(epochs=3, minibatch_size=16, target_kl=1e-3), seed=1)
    before = weights(policy)
    metrics = algorithm.update([trajectory]).metrics
    assert (weights(policy) == before).all()
    assert metrics["approx_kl"] > 1.5e-3
    assert metrics["grad_norm"] == 0
    assert all(math.isfinite(value) for value in metrics.values())
    assert algorithm.steps == trajectory.num_steps


def test_the_learning_rate_falls_linearly_to_its_fraction_and_stays_there():
    policy = make_policy()
    algorithm = PPO(policy, PPOConfig(learning_rate=1.0, anneal_steps=256, anneal_to=0.25, epochs=1), seed=1)
    updates = [algorithm.update([random_trajectory(policy)]) for _ in range(6)]  # 64 steps each
    rates = [update.metrics["learning_rate"] for update in updates]
    assert rates == pytest.approx([1.0, 0.8125, 0.625, 0.4375, 0.25, 0.25])


def test_the_entropy_coefficient_falls_with_the_root_of_the_steps():
    policy = make_policy()
    algorithm = PPO(policy, PPOConfig(entropy_coefficient=0.1, entropy_decay_steps=64, epochs=1), seed=1)
    seen = []
    for _ in range(4):  # 64 steps each
        seen.append(algorithm.entropy_coefficient)
        algorithm.update([random_trajectory(policy)])
    assert seen == pytest.approx([0.1, 0.1 / 2**0.5, 0.1 / 3**0.5, 0.05])
    assert PPO(policy, PPOConfig(entropy_coefficient=0.1), seed=1).entropy_coefficient == 0.1
    with pytest.raises(ConfigurationError, match="entropy_decay_steps=0 of ppo must be at least 1 or null"):
        PPOConfig(entropy_decay_steps=0)


def test_coefficients_may_be_schedules_by_steps_or_by_progress():
    rate = {"name": "linear", "start": 0.01, "end": 0.0, "over": "progress"}
    entropy = {"name": "piecewise", "steps": [0, 64, 128], "values": [0.1, 0.3, 0.0]}
    algorithm = PPO(make_policy(), PPOConfig(learning_rate=rate, entropy_coefficient=entropy, epochs=1), seed=1)
    seen = []
    for progress in (0.0, 0.5, 1.0):  # 64 steps each
        algorithm.take_progress(progress)
        seen.append(algorithm.entropy_coefficient)
        seen.append(algorithm.update([random_trajectory(algorithm.policy)]).metrics["learning_rate"])
    assert seen == pytest.approx([0.1, 0.01, 0.3, 0.005, 0.0, 0.0])
    algorithm.adjust({"learning_rate": 0.002})
    assert algorithm.set_learning_rate() == 0.002
    with pytest.raises(ConfigurationError) as caught:
        PPOConfig(learning_rate={"name": "linear", "start": 2.0, "end": 0.0}, entropy_coefficient={"name": "linaer"})
    assert len(caught.value.problems) == 3


def test_training_resumes_exactly_from_its_state():
    policy = make_policy()
    algorithm = PPO(policy, PPOConfig(minibatch_size=16, anneal_steps=1000), seed=1)
    algorithm.update([random_trajectory(policy)])
    twin = make_policy(seed=99)
    resumed = PPO(twin, algorithm.config, seed=99)
    twin.load_state_dict(policy.state_dict())
    tensors, scalars = algorithm.state()
    resumed.load_state({name: tensor.clone() for name, tensor in tensors.items()}, scalars)
    trajectory = random_trajectory(policy, seed=5)
    assert algorithm.update([trajectory]) == resumed.update([trajectory])
    torch.testing.assert_close(weights(policy), weights(twin), rtol=0, atol=0)


def test_the_state_before_the_first_update_can_be_loaded():
    fresh, other = PPO(make_policy(), PPOConfig(), seed=1), PPO(make_policy(), PPOConfig(), seed=2)
    other.update([random_trajectory(other.policy)])
    other.load_state(*fresh.state())
    other.policy.load_state_dict(fresh.policy.state_dict())
    trajectory = random_trajectory(fresh.policy)
    assert fresh.update([trajectory]) == other.update([trajectory])


@pytest.mark.parametrize("kind", SPACES)
def test_rewarded_actions_become_likely(kind):
    policy = make_policy(kind)
    algorithm = PPO(policy, PPOConfig(learning_rate=3e-3, minibatch_size=64), seed=1)
    for seed in range(40):
        trajectory = random_trajectory(policy, steps=32, seed=100 * seed)
        trajectory.terminated[:] = True  # a bandit: only the reward of the action itself counts
        if kind == "discrete":
            trajectory.reward[:] = trajectory.action == 2
        else:
            trajectory.reward[:] = -np.square(trajectory.action - 0.7).sum(-1)
        algorithm.update([trajectory])
    action = policy.step(np.random.default_rng(0).normal(size=(100, 4)).astype(np.float32), mode="greedy").action
    if kind == "discrete":
        assert (action == 2).mean() > 0.95
    else:
        np.testing.assert_allclose(action.mean(0), 0.7, atol=0.1)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_a_policy_on_a_gpu_acts_and_learns_as_on_the_cpu(request):
    library.choose("torch")  # the C library draws other actions from the same seed
    request.addfinalizer(lambda: library.choose("auto"))
    outcomes = []
    for device in ("cpu", "cuda"):
        policy = make_policy().to(device)
        trajectory = random_trajectory(policy)
        PPO(policy, PPOConfig(epochs=2), seed=1).update([trajectory])
        outcomes.append((trajectory.action, weights(policy).cpu()))
    np.testing.assert_array_equal(outcomes[0][0], outcomes[1][0])
    torch.testing.assert_close(outcomes[0][1], outcomes[1][1], rtol=0, atol=1e-3)


def test_an_algorithm_is_built_from_settings_that_include_its_name():
    algorithm = build_algorithm("ppo", {"name": "ppo", "epochs": 3, "gamma": 1}, make_policy(), seed=1)
    assert algorithm.config == PPOConfig(epochs=3, gamma=1.0)


@pytest.mark.parametrize(
    ("name", "config", "messages"),
    [
        ("pp0", {}, ["algorithm 'pp0' does not exist; did you mean ppo or appo?"]),
        ("ppo", {"epoch": 3}, ["setting of ppo 'epoch' does not exist; did you mean epochs"]),
        ("ppo", {"epochs": 1.5}, ["setting 'epochs' of ppo must be a whole number, is 1.5"]),
        ("ppo", {"epochs": True}, ["setting 'epochs' of ppo must be a whole number, is True"]),
        ("ppo", {"gamma": "0.9"}, ["setting 'gamma' of ppo must be a number, is '0.9'"]),
        ("ppo", {"normalize_advantage": 1}, ["setting 'normalize_advantage' of ppo must be true or false, is 1"]),
        ("ppo", {"target_kl": "x"}, ["setting 'target_kl' of ppo must be a number or null, is 'x'"]),
        ("ppo", {"gamma": 1.5, "epochs": 0}, ["epochs=0 of ppo must be at least 1", "gamma=1.5 of ppo must be within"]),
        ("ppo", {"minibatch_size": 1}, ["minibatch_size=1 of ppo must be at least 2"]),
        ("ppo", {"clip_range": float("nan")}, ["clip_range=nan of ppo must be above 0"]),
    ],
)
def test_wrong_settings_are_all_named(name, config, messages):
    with pytest.raises(ConfigurationError) as error:
        build_algorithm(name, config, make_policy(), seed=1)
    assert len(error.value.problems) == len(messages)
    for message in messages:
        assert message in str(error.value)
