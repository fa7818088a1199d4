"""R2D2: Kapturowski et al. 2019, with stored memory, burn-in and rescaled values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from agents.algorithms.contract import Update
from agents.algorithms.dqn.algorithm import ValueLearning, taken
from agents.algorithms.dqn.losses import value_errors
from agents.algorithms.r2d2.config import R2D2Config
from agents.algorithms.registry import ALGORITHMS
from agents.algorithms.transitions import coefficients_of
from agents.configuration import parse
from agents.operators.rescaling import rescaled, unscaled
from agents.policies import Policy
from agents.trajectories import Trajectory, concatenate
from warren.errors import ConfigurationError


class R2D2(ValueLearning[R2D2Config]):
    """One step on a batch of sequences of burn_in + learned + n_steps steps."""

    fixed: ClassVar[tuple[str, ...]] = (*ValueLearning.fixed, "burn_in", "learned")
    takes_memory = True

    def __init__(self, policy: Policy, config: R2D2Config, seed: int) -> None:
        """Raise ConfigurationError for a policy that does not act by values, or has no memory."""
        if not policy.has_memory:
            raise ConfigurationError(
                "algorithm: 'r2d2' trains networks with a memory, and this one has none; give it one "
                "(+network.core.name=lstm), or choose algorithm=dqn"
            )
        super().__init__(policy, config, seed)
        self.needs = replace(self.needs, fields=(), burn_in=config.burn_in)

    @property
    def length(self) -> int:
        config = self.config
        return config.burn_in + config.learned + config.n_steps

    def update(self, batch: Sequence[Trajectory]) -> Update:
        """Make one step; the priority of a sequence mixes the largest and the mean of its absolute errors."""
        rate, config, drawn = self.set_learning_rates(), self.config, concatenate(list(batch))
        first, learned = config.burn_in, config.learned
        values = self.unrolled(self.policy, drawn, first)
        chosen = taken(values[:learned], self._tensor(drawn.action[first : first + learned]))
        target, known = self._targets(drawn, values.detach())
        decided = torch.ones_like(known) if drawn.valid is None else self._tensor(drawn.valid[first : first + learned])
        known, count = known * decided, decided.sum().clamp(min=1)
        weights = torch.ones_like(known) if (given := getattr(batch, "weights", None)) is None else self._tensor(given)
        losses = value_errors(chosen.flatten(0, 1), target.flatten(0, 1), config.huber).view(known.shape)
        loss = (weights * known * losses).sum() / count
        norm = self.descend("policy", loss, {"value_loss": loss}, {"value": chosen, "target": target}, int(count))
        self.moved()
        self.take_in(drawn)
        error = known * (target.mean(-1) - chosen.detach().mean(-1)).abs()
        mean = error.sum(0) / known.sum(0).clamp(min=1)
        priority = config.largest_share * error.amax(0) + (1 - config.largest_share) * mean
        value = (decided * chosen.detach().mean(-1)).sum() / count
        terms = torch.stack([loss.detach(), norm, value, error.sum() / known.sum().clamp(min=1)]).tolist()
        metrics = dict(zip(("value_loss", "grad_norm", "value", "error"), terms, strict=True))
        metrics |= {"learning_rate": rate, "epsilon": config.epsilon_at(self.steps, self.progress)}
        return Update(metrics, priority.cpu().numpy())

    @torch.no_grad()
    def _targets(self, drawn: Trajectory, values: Tensor) -> tuple[Tensor, Tensor]:
        """Return (targets [learned, N, K], float32 [learned, N]: 1 where they are known).

        Targets are not known where an episode was cut off before the bootstrap: what came after has no value here.
        """
        config, policy = self.config, self.policy
        first, learned, steps = config.burn_in, config.learned, config.n_steps
        reward = drawn.reward @ coefficients_of(policy) if drawn.reward.ndim > 2 else drawn.reward
        total, goes_on = np.zeros_like(reward[:learned]), np.ones_like(drawn.terminated[:learned])
        known = goes_on.copy()
        for step in range(steps):
            here = slice(first + step, first + step + learned)
            total += config.gamma**step * goes_on * reward[here]
            known &= ~(goes_on & drawn.truncated[here] & ~drawn.terminated[here])
            goes_on &= ~(drawn.terminated | drawn.truncated)[here]
        masks = drawn.action_mask
        legal = None if masks is None else self._tensor(masks[first + steps : first + steps + learned])
        best = self.best(values[steps:], self.unrolled(self.target, drawn, first)[steps:], legal)
        discount = self._tensor((config.gamma**steps * goes_on).astype(np.float32))[..., None]
        total_reward = self._tensor(total)[..., None]
        if config.rescaled:
            return rescaled(total_reward + discount * unscaled(best)), self._tensor(known.astype(np.float32))
        return total_reward + discount * best, self._tensor(known.astype(np.float32))

    def _tensor(self, array: np.ndarray) -> Tensor:
        return torch.as_tensor(array, device=self.policy.device)


@ALGORITHMS.register("r2d2")
def build(config: Mapping[str, Any], policy: Policy, seed: int) -> R2D2:
    return R2D2(policy, parse(R2D2Config, "r2d2", config), seed)
