"""Diagonal gaussian distributions over Box actions: clipped to the bounds, or squashed into them."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from agents.operators.divergences import gaussian_entropy, gaussian_kl, mean_log_slope
from agents.policies.distribution import Distribution
from warren.errors import ConfigurationError

_HALF_LOG_TWO_PI = 0.5 * math.log(2 * math.pi)
NEAR_BOUND = 0.999  # at a bound itself, u of recorded actions would be infinite


class Gaussian(Distribution):
    """pi(a|s) = N(mean(s), exp(log_std)^2), the mean being the output; one learned log_std an action dimension.

    Actions float32 [..., A] are kept as drawn, so that log-probabilities are exact; `env_action` clips them to the
    space's bounds `low` and `high`.
    """

    def __init__(self, low: np.ndarray, high: np.ndarray, initial_std: float = 1.0) -> None:
        super().__init__()
        self.size = low.size
        self.log_std = nn.Parameter(torch.full((low.size,), math.log(initial_std)))
        self._low, self._high = low, high

    def moments(self, output: Tensor) -> tuple[Tensor, Tensor]:
        """Return (mean, log_std), [..., A] each, or [A] if no state changes it."""
        return output, self.log_std

    @property
    def added_log_std(self) -> Tensor:
        """Return float32 [A]: the logarithms of the deviations, or what is added to those that a state gives."""
        return self.log_std.detach()

    def sample(self, output: Tensor, generator: torch.Generator) -> Tensor:
        mean, log_std = self.moments(output)
        return mean + log_std.exp() * torch.empty(mean.shape).normal_(generator=generator).to(output.device)

    def displaced(self, output: Tensor, noise: Tensor) -> Tensor:
        """Return the actions that are `noise` [..., A] deviations from the mean, with gradients."""
        mean, log_std = self.moments(output)
        return mean + log_std.exp() * noise

    def uniform(self, output: Tensor, generator: torch.Generator) -> Tensor:
        """Draw as Distribution.uniform does. Raises ConfigurationError where the space has no bounds: numbers between
        infinite ones are NaN."""
        if not (np.isfinite(self._low) & np.isfinite(self._high)).all():
            raise ConfigurationError(
                "epsilon draws actions of a Box evenly between its bounds, and not all of them are finite; give the "
                "action space bounds, or let `behaviour` ask for noise"
            )
        drawn = torch.empty(self.mode(output).shape).uniform_(generator=generator)
        low, high = (torch.as_tensor(bound, dtype=torch.float32).flatten() for bound in (self._low, self._high))
        return (low + drawn * (high - low)).to(output.device)

    def noisy(self, action: Tensor, noise: Tensor) -> Tensor:
        half = torch.as_tensor((self._high - self._low) / 2, dtype=torch.float32, device=action.device).flatten()
        return action + noise * torch.where(half.isfinite(), half, 1.0)

    def mode(self, output: Tensor) -> Tensor:
        return self.moments(output)[0]

    def log_prob(self, output: Tensor, action: Tensor) -> Tensor:
        mean, log_std = self.moments(output)
        noise = (action - mean) * torch.exp(-log_std)
        return (-0.5 * noise.square() - log_std - _HALF_LOG_TWO_PI).sum(-1)

    def log_prob_entropy(self, output: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        return self.log_prob(output, action), gaussian_entropy(self.moments(output)[1]).expand(output.shape[:-1])

    def statistics(self, output: Tensor) -> Tensor:
        """Return the mean and log_std, [..., 2 A]."""
        mean, log_std = self.moments(output)
        return torch.cat([mean, log_std.expand_as(mean)], -1)

    def kl(self, p: Tensor, q: Tensor) -> Tensor:
        return gaussian_kl(*p.chunk(2, -1), *q.chunk(2, -1))

    def env_action(self, action: np.ndarray) -> np.ndarray:
        clipped: np.ndarray = action.reshape(len(action), *self._low.shape).clip(self._low, self._high)
        return clipped

    def own_action(self, action: np.ndarray) -> np.ndarray:
        if action.shape[1:] != self._low.shape or action.dtype.kind not in "fiu":
            expected = f"float32 [..., {list(self._low.shape)}]"
            raise ConfigurationError(f"action must be {expected}, is {action.dtype} {list(action.shape)}")
        return action.reshape(len(action), -1).astype(np.float32)


class SquashedGaussian(Gaussian):
    """pi(a|s) of a = tanh(u), u ~ N(mean(s), exp(log_std)^2): appendix C of Haarnoja et al. 2018.

    Actions are kept as u, float32 [..., A], since tanh cannot be undone near its ends; densities and entropies are
    those of a in [-1, 1], which `env_action` stretches to the bounds. The mode is tanh of the mean. The divergence of
    two is that of their gaussians: applying one invertible function to both does not change it.
    """

    def log_prob(self, output: Tensor, action: Tensor) -> Tensor:
        return super().log_prob(output, action) - _log_slope(action).sum(-1)

    def log_prob_entropy(self, output: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        log_prob, entropy = super().log_prob_entropy(output, action)  # by this class's log_prob
        mean, log_std = self.moments(output)
        return log_prob, entropy + mean_log_slope(mean, log_std).sum(-1)

    def uniform(self, output: Tensor, generator: torch.Generator) -> Tensor:
        return _unsquashed(torch.empty(self.mode(output).shape).uniform_(-1, 1, generator=generator).to(output.device))

    def noisy(self, action: Tensor, noise: Tensor) -> Tensor:
        return _unsquashed(action.tanh() + noise)

    def bounded(self, action: Tensor) -> Tensor:
        return action.tanh()

    def env_action(self, action: np.ndarray) -> np.ndarray:
        return stretched(np.tanh(action), self._low, self._high)

    def own_action(self, action: np.ndarray) -> np.ndarray:
        own = super().own_action(action)
        low, high = self._low.reshape(-1), self._high.reshape(-1)
        width = np.where(high > low, high - low, 1)
        share = np.where(high > low, 2 * (own - low) / width - 1, 0)
        undone: np.ndarray = np.arctanh(share.clip(-NEAR_BOUND, NEAR_BOUND)).astype(np.float32)
        return undone


def stretched(action: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Return actions [N, A] in [-1, 1] as those of a Box with these bounds."""
    share = (action.reshape(len(action), *low.shape) + 1) / 2
    found: np.ndarray = (low + share * (high - low)).astype(low.dtype)
    return found.clip(low, high)  # a sum may be rounded past a bound


def _unsquashed(action: Tensor) -> Tensor:
    """Return u of tanh(u) = `action`, finite also where that is past an end."""
    return action.clamp(-1 + 1e-6, 1 - 1e-6).atanh()


def _log_slope(u: Tensor) -> Tensor:
    """Return log tanh'(u) = log(1 - tanh(u)^2), finite even where tanh(u) rounds to 1."""
    return 2 * (math.log(2) - u - functional.softplus(-2 * u))
