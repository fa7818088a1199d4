import copy

import numpy as np
import pytest
import safetensors.torch
import torch
from gymnasium.spaces import Box, Discrete
from gymnasium.wrappers.utils import RunningMeanStd
from hypothesis import given
from hypothesis import strategies as st

from agents import build_algorithm, build_policy, checkpoints
from agents.operators.normalization import EPSILON, Moments, RunningMoments, discounted_sums, merge, popart


def samples(seed, count, *shape):
    return 5 + 3 * torch.randn((count, *shape), generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def running(*batches, shape=(), dtype=torch.float64):
    moments = RunningMoments(shape, dtype)
    for batch in batches:
        moments.update(batch)
    return moments


@given(seed=st.integers(0, 2**32), sizes=st.lists(st.integers(0, 5), min_size=1, max_size=5))
def test_moments_of_batches_equal_those_of_all_samples(seed, sizes):
    x = samples(seed, sum(sizes), 3)
    moments = running(*x.split(sizes), shape=(3,))
    mean, squares = [0.0] * 3, [0.0] * 3  # Welford 1962
    for count, sample in enumerate(x.tolist(), 1):
        for i, value in enumerate(sample):
            difference = value - mean[i]
            mean[i] += difference / count
            squares[i] += difference * (value - mean[i])
    assert moments.count.item() == len(x)
    assert moments.mean.tolist() == pytest.approx(mean)
    assert moments.variance.tolist() == pytest.approx([s / len(x) for s in squares] if len(x) else [1] * 3, abs=1e-12)


def test_moments_equal_those_of_gymnasium():
    batches = [samples(seed, 40, 2) for seed in range(20)]
    theirs = RunningMeanStd(epsilon=0, shape=(2,))
    for batch in batches:
        theirs.update(batch.numpy())
    ours = running(*batches, shape=(2,))
    np.testing.assert_allclose(ours.mean, theirs.mean)
    np.testing.assert_allclose(ours.variance, theirs.var)


@given(seed=st.integers(0, 2**32), sizes=st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(0, 5)))
def test_the_order_of_merging_does_not_matter(seed, sizes):
    a, b, c = (running(x, shape=(2,)).moments for x in samples(seed, sum(sizes), 2).split(sizes))
    for one, other in ((merge(merge(a, b), c), merge(a, merge(b, c))), (merge(a, b), merge(b, a))):
        torch.testing.assert_close(one.count, other.count)
        torch.testing.assert_close(one.mean, other.mean)
        torch.testing.assert_close(one.variance, other.variance)


def test_moments_equal_values_worked_by_hand():
    moments = running(torch.tensor([1.0, 3.0]), torch.tensor([8.0]))
    assert moments.mean.item() == pytest.approx(4)
    assert moments.variance.item() == pytest.approx((9 + 1 + 16) / 3)
    assert moments.normalize(torch.tensor([4.0 + 26**0.5])).item() == pytest.approx(3**0.5)


def test_a_mean_far_from_zero_costs_no_precision():
    x = 1e6 + samples(0, 1000)
    moments = running(*x.split(10))
    assert moments.variance.item() == pytest.approx(x.var(correction=0).item(), rel=1e-8)


def test_a_mean_still_moves_after_a_hundred_million_samples():
    moments = RunningMoments()
    moments.set(Moments(torch.tensor(1e8), torch.tensor(5.0), torch.tensor(1.0)))
    for _ in range(100):
        moments.update(torch.full((10,), 6.0))
    assert moments.mean.item() - 5 == pytest.approx(1000 / (1e8 + 1000), rel=1e-6)


def test_normalization_is_the_identity_before_the_first_sample():
    x = torch.tensor([-3.0, 0.0, 7.0])
    moments = RunningMoments()
    torch.testing.assert_close(moments.normalize(x), x)
    torch.testing.assert_close(moments.denormalize(x), x)


def test_normalized_samples_have_mean_zero_and_deviation_one():
    x = samples(0, 500, 2, 3)
    normal = running(x, shape=(2, 3)).normalize(x.float())
    assert normal.dtype == torch.float32
    torch.testing.assert_close(normal.mean(0), torch.zeros(2, 3), atol=1e-5, rtol=0)
    torch.testing.assert_close(normal.std(0, correction=0), torch.ones(2, 3), atol=1e-5, rtol=0)


def test_normalize_clips_if_asked_and_else_denormalize_inverts_it():
    moments = running(torch.tensor([0.0, 2.0]))
    x = torch.tensor([-99.0, 1.5, 99.0])
    assert moments.normalize(x, clip=5).tolist() == pytest.approx([-5, 0.5, 5])
    assert moments.scale(x, clip=5).tolist() == pytest.approx([-5, 1.5, 5])
    torch.testing.assert_close(moments.denormalize(moments.normalize(x)), x)


def test_a_constant_becomes_zero_and_not_nan():
    moments = running(torch.full((10,), 4.0))
    assert moments.normalize(torch.tensor([4.0, 4.5]), clip=10).tolist() == [0, 10]


def test_samples_of_any_leading_shape_and_dtype_count():
    pixels = torch.arange(24, dtype=torch.uint8).reshape(2, 3, 4)
    moments = running(pixels, shape=(4,))
    assert moments.count.item() == 6
    assert moments.mean.tolist() == pytest.approx([10, 11, 12, 13])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_moments_travel_with_the_weights_and_take_no_gradients(dtype):
    policy = torch.nn.Sequential(RunningMoments((2,), dtype), torch.nn.Linear(2, 1))
    policy[0].update(samples(0, 10, 2))
    sent = safetensors.torch.load(safetensors.torch.save(policy.state_dict()))
    copied = torch.nn.Sequential(RunningMoments((2,), dtype), torch.nn.Linear(2, 1))
    copied.load_state_dict(sent)
    for name, tensor in policy[0].state_dict().items():
        assert torch.equal(tensor, copied[0].state_dict()[name]), name
    assert [name for name, _ in policy.named_parameters()] == ["1.weight", "1.bias"]


def test_moments_of_a_policy_are_published_and_saved_with_its_weights(tmp_path):
    policies = [build_policy({"hidden_sizes": [4]}, Box(-1, 1, (4,)), Discrete(2), seed) for seed in range(3)]
    for policy in policies:
        policy.moments = RunningMoments((4,))
    first, second, third = policies
    first.moments.update(samples(0, 10, 4))
    tensors, _ = checkpoints.weights_from_bytes(checkpoints.weights_to_bytes(first, {}))
    checkpoints.load_weights(second, tensors)
    algorithm = build_algorithm("ppo", {}, first, seed=1)
    path = checkpoints.save(tmp_path, "one", first, algorithm, {})
    checkpoints.restore(third, build_algorithm("ppo", {}, third, seed=2), checkpoints.load(path))
    for policy in (second, third):
        for name, tensor in first.moments.state_dict().items():
            assert torch.equal(tensor, policy.moments.state_dict()[name]), name


def test_an_update_changes_the_tensors_in_place():
    moments = RunningMoments((2,))
    held = moments.state_dict()  # a publisher may hold on to it
    moments.update(samples(0, 10, 2))
    assert held["count"].item() == 10


@given(
    seed=st.integers(0, 2**32),
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=4),
    ending=st.sampled_from([0.0, 0.3, 1.0]),
)
def test_discounted_sums_continue_over_calls_and_restart_with_every_episode(seed, sizes, ending):
    generator = np.random.default_rng(seed)
    reward = generator.normal(size=(sum(sizes), 2))
    ended = generator.random(reward.shape) < ending
    expected = np.zeros_like(reward)
    for n in range(2):
        total = 0.0
        for t in range(len(reward)):
            expected[t, n] = total = reward[t, n] + 0.9 * total
            if ended[t, n]:
                total = 0.0
    carried, sums = torch.zeros(2, dtype=torch.float64), []
    for part, ends in zip(torch.tensor(reward).split(sizes), torch.tensor(ended).split(sizes), strict=True):
        result, carried = discounted_sums(part, ends, carried, 0.9)
        sums.append(result)
    np.testing.assert_allclose(torch.cat(sums), expected)


@given(seed=st.integers(0, 2**32))
def test_popart_preserves_outputs_while_moments_change(seed):
    moments = running(samples(seed, 5, 2), shape=(2,))
    generator = torch.Generator().manual_seed(seed)
    head = torch.nn.Linear(3, 2, dtype=torch.float64)
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    x = torch.randn((4, 3), generator=generator, dtype=torch.float64)
    said = moments.denormalize(head(x))
    before = copy.deepcopy(moments)
    moments.update(100 * samples(seed + 1, 7, 2))
    with torch.no_grad():
        for parameter, new in zip(
            head.parameters(), popart(head.weight, head.bias, before.moments, moments.moments), strict=True
        ):
            parameter.copy_(new)
    torch.testing.assert_close(moments.denormalize(head(x)), said)


def test_the_gradients_of_normalization_are_right():
    moments = running(samples(0, 10, 3), shape=(3,))
    x = samples(1, 2, 3).requires_grad_()
    for function in (moments.normalize, moments.denormalize, moments.scale, lambda x: moments.normalize(x, 0.5)):
        assert torch.autograd.gradcheck(function, (x,))
    assert pytest.approx(1e-8) == EPSILON


def test_on_a_device_without_float64_moments_become_float32():
    moments = RunningMoments((3,))
    moments.update(torch.randn(100, 3))
    expected = moments.mean.float()

    def to_a_device_without_float64(tensor):
        if tensor.dtype is torch.float64:
            raise TypeError("Cannot convert a MPS Tensor to float64 dtype as the MPS framework doesn't support float64")
        return tensor.clone()

    torch.nn.Sequential(moments)._apply(to_a_device_without_float64)
    assert moments.mean.dtype is moments.count.dtype is torch.float32
    assert torch.equal(moments.mean, expected)
    moments.update(torch.randn(100, 3))
    assert moments.count == 200
