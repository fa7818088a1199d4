"""A Beta distribution over Box actions with bounds, where a gaussian would be clipped (Chou et al. 2017)."""

import numpy as np
import torch
from torch.nn import functional

from agents.policies import Distribution


class Beta(Distribution):
    """Actions are stored as fractions of the range from `low` to `high`, float32 [..., A]."""

    def __init__(self, space, least):
        super().__init__()
        self.low, self.high, self.least = space.low, space.high, least
        self.size = 2 * space.low.size

    def _of(self, output):
        alpha, beta = (functional.softplus(output) + self.least).chunk(2, -1)
        return torch.distributions.Beta(alpha, beta, validate_args=False)

    def sample(self, output, generator):
        of = self._of(output)
        chance = np.random.default_rng(int(torch.randint(2**62, (), generator=generator)))
        drawn = chance.beta(of.concentration1.cpu(), of.concentration0.cpu())
        inside = drawn.clip(1e-6, 1 - 1e-6)  # 0 and 1 have no density
        return torch.as_tensor(inside, dtype=torch.float32, device=output.device)

    def mode(self, output):
        of = self._of(output)
        return ((of.concentration1 - 1) / (of.concentration1 + of.concentration0 - 2)).clamp(1e-6, 1 - 1e-6)

    def log_prob(self, output, action):
        return self._of(output).log_prob(action).sum(-1)

    def log_prob_entropy(self, output, action):
        return self.log_prob(output, action), self._of(output).entropy().sum(-1)

    def kl(self, p, q):
        return torch.distributions.kl_divergence(self._of(p), self._of(q)).sum(-1)

    def env_action(self, action):
        share = action.reshape(len(action), *self.low.shape)
        return (self.low + share * (self.high - self.low)).astype(self.low.dtype)


def build(settings, space):
    return Beta(space, settings.get("least", 1.001))  # above 1: one peak, within the bounds
