"""RMSprop on one tensor, as torch.optim.RMSprop computes it without momentum: the optimizer of IMPALA and DQN."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor


class RMSprop:
    """Steps `values`, float [P], down `values.grad`.

    `state`: "step", float32 [], and `moments`, [P] each; empty before the first step.
    """

    moments: ClassVar[tuple[str, ...]] = ("square_avg",)

    def __init__(self, values: Tensor, learning_rate: float, decay: float = 0.99, epsilon: float = 0.01) -> None:
        self.values, self.learning_rate = values, learning_rate
        self.decay, self.epsilon, self.weight_decay = decay, epsilon, 0.0
        self.state: dict[str, Tensor] = {}

    @torch.no_grad()
    def step(self, skipped: Tensor | None = None) -> None:
        """Make one step; where `skipped`, float32 [] on the values' device, is 1, change nothing."""
        if not self.state:
            self.state = {"step": self.values.new_zeros((), dtype=torch.float32)}
            self.state["square_avg"] = torch.zeros_like(self.values)
        gradient, values, squares = self.values.grad, self.values, self.state["square_avg"]
        assert gradient is not None
        if self.weight_decay:
            gradient = gradient.add(values, alpha=self.weight_decay)
        after = squares.mul(self.decay).addcmul_(gradient, gradient, value=1 - self.decay)
        stepped = values.addcdiv(gradient, after.sqrt().add_(self.epsilon), value=-self.learning_rate)
        if skipped is not None:
            after, stepped = torch.where(skipped > 0, squares, after), torch.where(skipped > 0, values, stepped)
        squares.copy_(after)
        values.copy_(stepped)
        self.state["step"] += 1 if skipped is None else 1 - skipped
