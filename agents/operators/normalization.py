"""Running normalisation of observations, rewards and values, by the mean and variance of all samples so far."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

EPSILON = 1e-8  # added to variances, as Gymnasium, ppo2 and Stable-Baselines3 do


@dataclass(frozen=True)
class Moments:
    """Mean and (biased) variance of each element of `count` samples of one shape."""

    count: Tensor  # [], in the dtype of the others
    mean: Tensor
    variance: Tensor

    @property
    def deviation(self) -> Tensor:
        return (self.variance + EPSILON).sqrt()


def merge(a: Moments, b: Moments) -> Moments:
    """Return the moments of both sets of samples, in any order alike up to rounding: Chan, Golub & LeVeque 1983."""
    count = a.count + b.count
    weight = b.count / count.clamp(min=1)
    difference = b.mean - a.mean
    mean = a.mean + weight * difference
    variance = (1 - weight) * a.variance + weight * b.variance + weight * (1 - weight) * difference.square()
    return Moments(count, mean, variance)


class RunningMoments(nn.Module):
    """Moments of all samples [*shape] so far, as buffers, so that they are published and saved with their policy.

    Before the first sample the mean is 0 and the variance 1: `normalize` changes nothing. float64 by default, since a
    float32 mean stops moving after some ten million samples; float32 on a device without float64 (mps).
    """

    def __init__(self, shape: Sequence[int] = (), dtype: torch.dtype = torch.float64) -> None:
        super().__init__()
        self.count: Tensor
        self.mean: Tensor
        self.variance: Tensor
        self.register_buffer("count", torch.zeros((), dtype=dtype))
        self.register_buffer("mean", torch.zeros(tuple(shape), dtype=dtype))
        self.register_buffer("variance", torch.ones(tuple(shape), dtype=dtype))
        self.total: Callable[[Tensor], Tensor] | None = None  # sums over several learners, each with samples of its own

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "total": None}  # a copy belongs to no learner

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> RunningMoments:
        try:
            return super()._apply(fn, recurse)  # type: ignore[no-untyped-call, no-any-return]
        except TypeError:  # mps has no float64
            if self.count.dtype is not torch.float64:
                raise
            self.float()
            return super()._apply(fn, recurse)  # type: ignore[no-untyped-call, no-any-return]

    @property
    def moments(self) -> Moments:
        return Moments(self.count, self.mean, self.variance)

    @torch.no_grad()
    def update(self, x: Tensor) -> None:
        """Add samples [..., *shape] of any dtype and number; an empty tensor changes nothing."""
        if x.numel():
            samples = x.reshape(-1, *self.mean.shape).to(self.mean)
            variance, mean = torch.var_mean(samples, 0, correction=0)
            self.set(merge(self.moments, self._of_all(Moments(self.count.new_tensor(len(samples)), mean, variance))))

    def _of_all(self, own: Moments) -> Moments:
        """Return the moments of all learners' samples of this update; without other learners these are `own`."""
        if self.total is None:
            return own
        sums = torch.stack([own.count.expand_as(own.mean), own.count * own.mean, own.count * own.mean.square()])
        spread = own.count * own.variance
        count, total, squares, within = self.total(torch.cat([sums, spread[None]]).double()).to(own.mean).unbind()
        mean = total / count
        variance = ((squares + within) / count - mean.square()).clamp(min=0)
        return Moments(count.flatten()[0], mean, variance)

    @torch.no_grad()
    def set(self, moments: Moments) -> None:
        """Overwrite the moments with these."""
        self.count.copy_(moments.count)
        self.mean.copy_(moments.mean)
        self.variance.copy_(moments.variance)

    def normalize(self, x: Tensor, clip: float | None = None) -> Tensor:
        """Return (x - mean) / deviation, clipped to [-clip, clip]; x float [..., *shape], whose dtype is kept."""
        return self.scale(x - self.mean.to(x.dtype), clip)

    def denormalize(self, x: Tensor) -> Tensor:
        """Undo `normalize` (clipping aside): turn values in standard deviations back into the original unit."""
        return x * self.moments.deviation.to(x.dtype) + self.mean.to(x.dtype)

    def scale(self, x: Tensor, clip: float | None = None) -> Tensor:
        """Return x / deviation, clipped to [-clip, clip]: for rewards, whose sign and zero are to stay.

        The samples have to be `discounted_sums`, not rewards, so that values have a deviation near 1.
        """
        scaled = x / self.moments.deviation.to(x.dtype)
        return scaled if clip is None else scaled.clamp(-clip, clip)


def discounted_sums(reward: Tensor, ended: Tensor, carried: Tensor, gamma: float) -> tuple[Tensor, Tensor]:
    """Return (S [T, N], `carried` [N] for the next call): S_t = r_t + gamma S_{t-1}, starting at 0 in every episode.

    `reward` is [T, N]; `ended` bool [T, N] is True at an episode's last step; `carried` [N] is zeros in the first call.
    Rewards are scaled by the deviation of S: ppo2's VecNormalize; Engstrom et al. 2020, section 3.
    """
    sums = []
    for step_reward, step_ended in zip(reward.unbind(), ended.unbind(), strict=True):
        sums.append(step_reward + gamma * carried)
        carried = sums[-1].masked_fill(step_ended, 0)
    return torch.stack(sums), carried


def popart(weight: Tensor, bias: Tensor, before: Moments, after: Moments) -> tuple[Tensor, Tensor]:
    """Return (weight [C, H], bias [C]) of a value head whose denormalised output is unchanged by new moments [C].

    w' = sigma w / sigma', b' = (sigma b + mu - mu') / sigma': proposition 1 of van Hasselt et al. 2016 (PopArt).
    """
    old, new = before.deviation.to(weight.dtype), after.deviation.to(weight.dtype)
    shift = (before.mean - after.mean).to(weight.dtype)
    return weight * (old / new)[:, None], (old * bias + shift) / new
