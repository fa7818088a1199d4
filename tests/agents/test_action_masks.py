import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from support.experience import random_trajectory
from torch.distributions import Categorical

from agents import Trajectory, build_policy
from agents.algorithms.ppo import PPO, PPOConfig
from agents.trajectories import concatenate
from warren.errors import ConfigurationError, WireError

OBSERVATIONS = Box(-1, 1, (4,), np.float32)


def make_policy():
    policy = build_policy({"hidden_sizes": [16]}, OBSERVATIONS, Discrete(5), seed=3)
    generator = torch.Generator().manual_seed(9)
    for parameter in policy.parameters():  # away from the near-uniform start
        parameter.data.add_(0.5 * torch.randn(parameter.shape, generator=generator))
    return policy


def masks(*shape, seed=0):
    """Return random masks with at least one legal action each; some have only one."""
    generator = np.random.default_rng(seed)
    mask = generator.random((*shape, 5)) < 0.4
    np.put_along_axis(mask, generator.integers(0, 5, (*shape, 1)), True, axis=-1)
    return mask


def masked_trajectory(policy, steps=16, envs=4, seed=0, mask=None):
    trajectory = random_trajectory(policy, steps, envs, seed)
    trajectory.action_mask = masks(steps, envs, seed=seed) if mask is None else mask
    for t in range(steps):
        generator = torch.Generator().manual_seed(seed + t)
        acted = policy.step(trajectory.observation[t], action_mask=trajectory.action_mask[t], generator=generator)
        trajectory.action[t] = acted.action
        trajectory.extras["log_prob"][t], trajectory.extras["value"][t] = (
            acted.extras["log_prob"],
            acted.extras["value"],
        )
    return trajectory


def observations(n):
    return np.random.default_rng(0).normal(size=(n, 4)).astype(np.float32)


@pytest.mark.parametrize("mode", ["sample", "greedy"])
def test_illegal_actions_are_never_taken(mode):
    policy, x, mask = make_policy(), observations(5000), masks(5000)
    action = policy.step(x, mode=mode, action_mask=mask).action
    assert mask[np.arange(5000), action].all()
    assert len(np.unique(action)) == 5


def test_masked_log_probabilities_and_entropies_are_over_legal_actions_alone():
    policy, x, mask = make_policy(), observations(40), masks(40)
    action = torch.from_numpy(policy.step(x, action_mask=mask).action)
    log_prob, entropy, _, _ = policy.evaluate(torch.from_numpy(x), action, torch.from_numpy(mask))
    output, _ = policy.network.act(torch.from_numpy(x), {})
    for i in range(40):
        legal = np.flatnonzero(mask[i])
        alone = Categorical(logits=output[i, legal])
        place = torch.tensor(list(legal).index(int(action[i])))
        torch.testing.assert_close(log_prob[i], alone.log_prob(place))
        torch.testing.assert_close(entropy[i], alone.entropy(), atol=1e-6, rtol=1e-5)


def test_probabilities_are_zero_for_illegal_actions_and_match_the_draws():
    policy, x, mask = make_policy(), observations(1), masks(1, seed=4)
    p = policy.probabilities(x, mask)
    assert (p[~mask] == 0).all() and mask.sum() > 1
    many, generator = np.repeat(x, 40_000, 0), torch.Generator().manual_seed(1)
    action, extras, _ = policy.step(many, action_mask=np.repeat(mask, 40_000, 0), generator=generator)
    np.testing.assert_allclose(np.bincount(action, minlength=5) / 40_000, p[0], atol=0.01)
    np.testing.assert_allclose(np.exp(extras["log_prob"][:100]), p[0, action[:100]], rtol=1e-5)


def test_an_update_does_not_move_the_logit_of_a_never_legal_action():
    policy = make_policy()
    mask = masks(16, 4)
    mask[..., 2], mask[..., 0] = False, True
    trajectory = masked_trajectory(policy, mask=mask)
    last = policy.network.policy_trunk.layers[-1]
    before = last.weight.detach().clone()
    metrics = PPO(policy, PPOConfig(entropy_coefficient=0.1), seed=1).update([trajectory]).metrics
    assert all(np.isfinite(value) for value in metrics.values())
    torch.testing.assert_close(last.weight[2], before[2], rtol=0, atol=0)
    assert not torch.equal(last.weight, before)


def test_a_mask_that_allows_everything_changes_no_number():
    outcomes = []
    for masked in (False, True):
        policy = make_policy()
        trajectory = random_trajectory(policy)
        trajectory.action_mask = np.ones((16, 4, 5), bool) if masked else None
        metrics = PPO(policy, PPOConfig(minibatch_size=16), seed=1).update([trajectory]).metrics
        outcomes.append((metrics, [p.detach().clone() for p in policy.parameters()]))
    assert outcomes[0][0] == outcomes[1][0]
    torch.testing.assert_close(outcomes[0][1], outcomes[1][1], rtol=0, atol=0)


def test_rewarded_actions_become_likely_where_they_are_legal():
    policy = make_policy()
    algorithm = PPO(policy, PPOConfig(learning_rate=3e-3, minibatch_size=64), seed=1)
    for seed in range(40):
        trajectory = masked_trajectory(policy, steps=32, seed=100 * seed)
        trajectory.terminated[:] = True  # a bandit: the highest legal action is the best
        trajectory.reward[:] = trajectory.action
        algorithm.update([trajectory])
    mask = masks(300, seed=7)
    action = policy.step(observations(300), mode="greedy", action_mask=mask).action
    assert (action == 4 - mask[:, ::-1].argmax(1)).mean() > 0.95


def test_continuous_actions_take_no_mask():
    policy = build_policy({}, OBSERVATIONS, Box(-1, 1, (2,), np.float32), seed=1)
    with pytest.raises(ConfigurationError, match=r"Box.*takes no action mask"):
        policy.step(observations(3), action_mask=masks(3))


def test_trajectories_with_and_without_masks_survive_a_dictionary():
    trajectory = masked_trajectory(make_policy())
    np.testing.assert_array_equal(Trajectory.from_dict(trajectory.to_dict()).action_mask, trajectory.action_mask)
    plain = random_trajectory(make_policy())
    assert "action_mask" not in plain.to_dict()
    assert Trajectory.from_dict(plain.to_dict()).action_mask is None


def test_masked_trajectories_are_joined_only_with_masked_ones():
    policy = make_policy()
    joined = concatenate([masked_trajectory(policy), masked_trajectory(policy, envs=2, seed=1)])
    assert joined.action_mask.shape == (16, 6, 5)
    with pytest.raises(ValueError, match="with and without action_mask"):
        concatenate([masked_trajectory(policy), random_trajectory(policy)])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda mask: mask.astype(np.int8), "action_mask must be bool, is int8"),
        (lambda mask: mask[:, :2], r"action_mask must be \[16, 4, '\.\.\.'\], is \[16, 2, 5\]"),
        (lambda mask: np.zeros_like(mask), r"action holds \d at \[0, 0\], which its mask forbids"),
        (lambda mask: mask[..., :1], r"action holds \d at \[\d, \d\], which its mask forbids"),
    ],
)
def test_a_mask_that_does_not_fit_its_trajectory_is_refused(change, message):
    data = masked_trajectory(make_policy()).to_dict()
    data["action_mask"] = change(data["action_mask"])
    with pytest.raises(WireError, match=message):
        Trajectory.from_dict(data)


def test_hyperparameters_are_adjusted_and_the_others_stay():
    algorithm = PPO(make_policy(), PPOConfig(epochs=3), seed=1)
    algorithm.adjust({"learning_rate": 0.5, "entropy_coefficient": 1})
    assert algorithm.config == PPOConfig(epochs=3, learning_rate=0.5, entropy_coefficient=1.0)
    assert algorithm.update([random_trajectory(algorithm.policy)]).metrics["learning_rate"] == 0.5
    with pytest.raises(ConfigurationError, match="'gama' does not exist"):
        algorithm.adjust({"gama": 0.9})
    assert algorithm.config.learning_rate == 0.5
