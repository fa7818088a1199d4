"""Each distribution, compared with torch's, or with numerical integration where torch has no closed form."""

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple
from scipy import integrate, stats
from torch import distributions

from agents import build_policy
from agents.policies.categorical import Categorical, MultiCategorical
from agents.policies.gaussian import Gaussian, SquashedGaussian
from warren.errors import ConfigurationError

OBSERVATIONS = Box(-1, 1, (4,), np.float32)
COUNTS = [3, 2, 5]
LOW, HIGH = np.array([-1, -3], np.float32), np.array([1, 2], np.float32)


def output(size, rows=40, seed=0):
    return torch.randn(rows, size, generator=torch.Generator().manual_seed(seed))


def gaussian(kind, seed=0):
    made = kind(LOW, HIGH, initial_std=0.7)
    made.log_std.data.add_(0.3 * torch.randn(2, generator=torch.Generator().manual_seed(seed)))
    return made


def independent(logits, counts):
    return [distributions.Categorical(logits=part) for part in logits.split(counts, -1)]


MULTI = {
    "unequal": MultiCategorical(COUNTS, 0, (3,), np.dtype(np.int64)),
    "equal": MultiCategorical([4, 4], 0, (2,), np.dtype(np.int64)),
    "binary": MultiCategorical([2] * 5, 0, (5,), np.dtype(np.int8)),
}


@pytest.mark.parametrize("leading", [(40,), (5, 8)])
@pytest.mark.parametrize("kind", MULTI)
def test_several_choices_are_independent_categoricals(kind, leading):
    multi, counts = MULTI[kind], MULTI[kind]._counts
    logits = output(multi.size).reshape(*leading, -1)
    theirs = independent(logits, counts)
    action = multi.sample(logits, torch.Generator().manual_seed(1))
    log_prob = multi.log_prob(logits, action)
    assert action.shape == (*leading, len(counts)) and action.dtype == torch.int64
    expected = sum(one.log_prob(action[..., k]) for k, one in enumerate(theirs))
    torch.testing.assert_close(log_prob, expected)
    again, entropy = multi.log_prob_entropy(logits, action)
    torch.testing.assert_close(again, log_prob)
    torch.testing.assert_close(entropy, sum(one.entropy() for one in theirs))
    best = multi.mode(logits)
    log_prob = multi.log_prob(logits, best)
    torch.testing.assert_close(best, torch.stack([one.probs.argmax(-1) for one in theirs], -1))
    torch.testing.assert_close(log_prob, multi.log_prob_entropy(logits, best)[0])
    other = output(multi.size, seed=3).reshape(*leading, -1)
    kl = sum(map(distributions.kl_divergence, theirs, independent(other, counts)))
    torch.testing.assert_close(multi.kl(logits, other), kl)


def test_draws_of_several_choices_follow_their_probabilities():
    multi, n = MULTI["unequal"], 40_000
    logits = output(multi.size, rows=1)
    action = multi.sample(logits.expand(n, -1), torch.Generator().manual_seed(1))
    for k, one in enumerate(independent(logits, COUNTS)):
        frequency = torch.bincount(action[:, k], minlength=COUNTS[k]) / n
        torch.testing.assert_close(frequency, one.probs[0], rtol=0, atol=0.01)


@pytest.mark.parametrize("kind", ["one", *MULTI])
def test_masked_actions_have_probability_zero_and_add_nothing_to_the_entropy(kind):
    distribution = Categorical(6) if kind == "one" else MULTI[kind]
    counts = [6] if kind == "one" else distribution._counts
    generator = np.random.default_rng(0)
    mask = np.concatenate([legal(generator, 40, count) for count in counts], -1)
    logits = output(distribution.size).requires_grad_()
    masked = distribution.masked(logits, torch.from_numpy(mask))
    for part, allowed in zip(masked.split(counts, -1), np.split(mask, np.cumsum(counts)[:-1], -1), strict=True):
        assert (torch.softmax(part, -1).detach().numpy()[~allowed] == 0.0).all()
    action = distribution.sample(masked, torch.Generator().manual_seed(1))
    starts = np.cumsum([0, *counts[:-1]])
    assert np.take_along_axis(mask, action.detach().numpy().reshape(40, -1) + starts, -1).all()
    log_prob, entropy = distribution.log_prob_entropy(masked, action)
    expected = sum(one.entropy() for one in independent(masked, counts))
    torch.testing.assert_close(entropy, expected)
    assert np.isfinite(log_prob.detach().numpy()).all() and (entropy >= -1e-6).all()
    (log_prob.sum() + entropy.sum()).backward()
    assert torch.isfinite(logits.grad).all() and not logits.grad[~torch.from_numpy(mask)].any()
    assert distribution.kl(masked, masked).detach().abs().max() <= 1e-6


def legal(generator, rows, count):
    mask = generator.random((rows, count)) < 0.4
    np.put_along_axis(mask, generator.integers(0, count, (rows, 1)), True, axis=-1)
    return mask


def test_a_gaussian_equals_torchs():
    ours, mean = gaussian(Gaussian), output(2)
    theirs = distributions.Independent(distributions.Normal(mean, ours.log_std.exp()), 1)
    action = ours.sample(mean, torch.Generator().manual_seed(1))
    log_prob = ours.log_prob(mean, action)
    torch.testing.assert_close(log_prob, theirs.log_prob(action))
    again, entropy = ours.log_prob_entropy(mean, action)
    torch.testing.assert_close(again, theirs.log_prob(action))
    torch.testing.assert_close(entropy, theirs.entropy())
    best = ours.mode(mean)
    log_prob = ours.log_prob(mean, best)
    torch.testing.assert_close(log_prob, theirs.log_prob(best))


@pytest.mark.parametrize("kind", [Gaussian, SquashedGaussian])
def test_the_divergence_of_gaussians_with_different_spreads_equals_torchs(kind):
    ours, other = gaussian(kind), gaussian(kind, seed=5)
    p, q = ours.statistics(output(2)), other.statistics(output(2, seed=1))
    theirs = distributions.kl_divergence(
        distributions.Independent(distributions.Normal(output(2), ours.log_std.exp()), 1),
        distributions.Independent(distributions.Normal(output(2, seed=1), other.log_std.exp()), 1),
    )
    torch.testing.assert_close(ours.kl(p, q), theirs)
    torch.testing.assert_close(ours.kl(p, p), torch.zeros(40), rtol=0, atol=1e-6)


def test_a_squashed_gaussian_has_the_density_of_torchs_tanh_transform():
    ours, mean = gaussian(SquashedGaussian), output(2)
    base = distributions.Normal(mean.double(), ours.log_std.exp().double())
    theirs = distributions.TransformedDistribution(base, distributions.TanhTransform())
    u = ours.sample(mean, torch.Generator().manual_seed(1))
    log_prob = ours.log_prob(mean, u)
    expected = theirs.log_prob(u.double().tanh()).sum(-1)
    torch.testing.assert_close(log_prob.double(), expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(ours.log_prob_entropy(mean, u)[0], log_prob)
    best = ours.mode(mean)
    log_prob = ours.log_prob(mean, best)
    torch.testing.assert_close(best, mean)
    torch.testing.assert_close(log_prob, ours.log_prob_entropy(mean, mean)[0])


@pytest.mark.parametrize("mean", [-3.0, 0.0, 0.4, 2.0])
@pytest.mark.parametrize("std", [0.01, 0.1, 0.7, 1.5, 6.0])
def test_a_squashed_gaussians_entropy_equals_its_integral(mean, std):
    ours = SquashedGaussian(LOW[:1], HIGH[:1], initial_std=std)
    normal = stats.norm(mean, std)

    def integrand(u):
        return -normal.pdf(u) * (normal.logpdf(u) - 2 * (np.log(2) - u - np.logaddexp(0, -2 * u)))

    expected, _ = integrate.quad(integrand, mean - 10 * std, mean + 10 * std, points=[0.0, mean], limit=200)
    _, entropy = ours.log_prob_entropy(torch.tensor([[mean]]), torch.zeros(1, 1))
    assert entropy.item() == pytest.approx(expected, abs=1e-4)


def test_a_squashed_gaussian_stays_finite_and_in_bounds_where_tanh_rounds_to_one():
    ours = gaussian(SquashedGaussian)
    far = torch.tensor([[50.0, -50.0]], requires_grad=True)
    log_prob, entropy = ours.log_prob_entropy(far, torch.tensor([[50.0, -50.0]]))
    (log_prob + entropy).sum().backward()
    assert torch.isfinite(log_prob).all() and torch.isfinite(entropy).all() and torch.isfinite(far.grad).all()
    np.testing.assert_array_equal(
        ours.env_action(np.array([[50.0, -50.0], [0.0, 0.0]], np.float32)), [[1, -3], [0, -0.5]]
    )


SPACE = Dict(
    {
        "move": Discrete(4, start=1),
        "aim": Box(LOW, HIGH),
        "keys": Tuple([MultiBinary(3), MultiDiscrete([2, 3], start=[1, 0])]),
    }
)


@pytest.mark.parametrize("squashed", [False, True])
def test_a_dict_of_actions_is_acted_and_evaluated_as_the_sum_of_its_leaves(squashed):
    settings = {"policy_gain": 1.0, "box_actions": {"squashed": squashed, "initial_std": 0.5}}
    policy = build_policy(settings, OBSERVATIONS, SPACE, seed=1)
    x = np.random.default_rng(0).normal(size=(30, 4)).astype(np.float32)
    acted = policy.step(x)
    assert {name: (part.shape, part.dtype) for name, part in acted.action.items()} == {
        "move": ((30,), np.int64),
        "aim": ((30, 2), np.float32),
        "keys/0": ((30, 3), np.int64),
        "keys/1": ((30, 2), np.int64),
    }
    action = {name: torch.from_numpy(part) for name, part in acted.action.items()}
    evaluated = policy.evaluate(torch.from_numpy(x), action)
    np.testing.assert_allclose(evaluated.log_prob.detach().numpy(), acted.extras["log_prob"], rtol=1e-4, atol=1e-5)
    each = [
        part.log_prob_entropy(evaluated.output[name], action[name])
        for name, part in zip(action, policy.distribution.parts, strict=True)
    ]
    torch.testing.assert_close(evaluated.log_prob, sum(log_prob for log_prob, _ in each))
    torch.testing.assert_close(evaluated.entropy, sum(entropy for _, entropy in each))
    nested = policy.env_action(acted.action)
    for i in range(30):
        one = {
            "move": nested["move"][i],
            "aim": nested["aim"][i],
            "keys": (nested["keys"][0][i], nested["keys"][1][i]),
        }
        assert SPACE.contains(one), one


def test_divergences_are_returned_by_head():
    policy, teacher = (build_policy({"policy_gain": 1.0}, OBSERVATIONS, SPACE, seed) for seed in (1, 2))
    x = torch.randn(6, 4)
    action = {name: torch.from_numpy(part) for name, part in policy.step(x.numpy()).action.items()}
    ours, theirs = (one.statistics(one.evaluate(x, action).output) for one in (policy, teacher))
    divergence = policy.kl(theirs, ours)
    assert set(divergence) == {"aim", "keys/0", "keys/1", "move"}
    assert all(part.shape == (6,) and (part > 0).all() for part in divergence.values())
    single = build_policy({}, OBSERVATIONS, Discrete(3), seed=1)
    same = single.statistics(single.evaluate(x, torch.zeros(6, dtype=torch.int64)).output)
    assert {name: part.abs().max().item() for name, part in single.kl(same, same).items()} == {"": 0.0}


def test_masks_of_dict_actions_are_by_leaf_and_may_be_left_out():
    policy = build_policy({"policy_gain": 1.0}, OBSERVATIONS, SPACE, seed=1)
    x, move = np.zeros((50, 4), np.float32), np.tile([True, False, False, True], (50, 1))
    action = policy.step(x, action_mask={"move": move}).action
    assert set(action["move"]) == {0, 3}
    with pytest.raises(ConfigurationError, match="action mask of 'jump': the action space has the parts"):
        policy.step(x, action_mask={"jump": move})
    with pytest.raises(ConfigurationError, match="a policy over Box actions takes no action mask"):
        policy.step(x, action_mask={"aim": np.ones((50, 2), bool)})


def test_several_reward_channels_have_a_value_each():
    policy = build_policy({}, OBSERVATIONS, Discrete(3), seed=1, reward_channels=2)
    assert policy.step(np.zeros((5, 4), np.float32)).extras["value"].shape == (5, 2)
    assert policy.value(np.zeros((5, 4), np.float32)).shape == (5, 2)


def test_an_unknown_mode_and_a_missing_table_of_probabilities_are_refused():
    policy = build_policy({}, OBSERVATIONS, MultiBinary(2), seed=1)
    with pytest.raises(ConfigurationError, match="mode 'best' of a policy's step must be 'sample' or 'greedy'"):
        policy.step(np.zeros((1, 4), np.float32), mode="best")
    with pytest.raises(ConfigurationError, match="has no table of probabilities"):
        policy.probabilities(np.zeros((1, 4), np.float32))


@pytest.mark.parametrize(
    ("box", "space", "message"),
    [
        ({"squashed": True}, Box(-np.inf, np.inf, (2,), np.float32), "has no bounds to squash into"),
        ({"initial_std": 0}, Box(-1, 1, (2,), np.float32), r"initial_std=0.0 of box_actions must be above 0"),
        ({"initial_std": np.nan}, Box(-1, 1, (2,), np.float32), r"initial_std=nan of box_actions must be above 0 and"),
        ({"squash": True}, Discrete(2), r"setting of box_actions 'squash' does not exist; did you mean squashed\?"),
    ],
)
def test_impossible_settings_of_box_actions_are_refused(box, space, message):
    with pytest.raises(ConfigurationError, match=message):
        build_policy({"box_actions": box}, OBSERVATIONS, space, seed=1)
