"""Every operator stays on the device of its tensors: a GPU if there is one, and `meta`, which mixes with no other."""

import dataclasses

import pytest
import torch
from support.unroll_examples import random_unroll

from agents.operators import divergences, losses
from agents.operators.advantages import gae
from agents.operators.normalization import RunningMoments, discounted_sums, popart
from agents.operators.returns import lambda_return, n_step_return
from agents.operators.upgo import upgo_return
from agents.operators.vtrace import vtrace

NO_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")


def results(device):
    """Return the results of every operator on `device`, in float32."""

    def there(x):
        return x.nan_to_num().float().to(device) if x.is_floating_point() else x.to(device)

    unroll = random_unroll(0, steps=6, envs=4)
    unroll = type(unroll)(*(there(getattr(unroll, field.name)) for field in dataclasses.fields(unroll)))
    a, b, c = map(there, torch.randn(3, 6, 4, generator=torch.Generator().manual_seed(0)))
    mask = there(torch.arange(4) < 3).expand(6, 4)
    moments = RunningMoments((4,)).to(device)
    before = dataclasses.replace(moments.moments, **{n: t.clone() for n, t in vars(moments.moments).items()})
    moments.update(a)
    return [
        gae(unroll, 0.9, 0.8),
        n_step_return(unroll, 0.9, 3),
        lambda_return(unroll, 0.9, 0.8),
        *vtrace(unroll, a, b, 0.9),
        upgo_return(unroll, 0.9),
        losses.clipped_surrogate(losses.target_ratio(a, b, c), c, 0.2),
        losses.policy_gradient(a, b),
        losses.value_loss(a, b, c, 0.2),
        losses.huber_value_loss(a, b, 1.0),
        losses.teacher_loss({"head": divergences.categorical_kl(a, b, mask)}, {"head": 0.5}),
        losses.standardize(a),
        losses.approximate_kl(a, a.exp()),
        losses.explained_variance(a, b),
        divergences.categorical_entropy(a, mask),
        divergences.gaussian_entropy(a),
        divergences.mean_log_slope(a, b),
        divergences.gaussian_kl(a, b, c, a),
        moments.normalize(a, clip=1.0),
        moments.denormalize(a),
        *discounted_sums(a, mask, c[0], 0.9),
        *popart(a.T, a[0], before, moments.moments),
    ]


@pytest.mark.parametrize("device", ["meta", pytest.param("cuda", marks=NO_GPU)])
def test_operators_stay_on_the_device_of_their_tensors(device):
    for here, there in zip(results("cpu"), results(device), strict=True):
        assert there.device.type == device
        assert (there.shape, there.dtype) == (here.shape, here.dtype)
        if device != "meta":
            torch.testing.assert_close(there.cpu(), here)
