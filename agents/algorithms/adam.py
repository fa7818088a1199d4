"""Adam on one tensor: Kingma and Ba 2015, by the kernel of torch.optim.Adam(fused=True)."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.optim.adam import adam

MOMENTS = ("exp_avg", "exp_avg_sq")  # as torch calls them


class Adam:
    """Steps `values`, float [P], down `values.grad`.

    torch.optim.Adam makes the same steps, but a process's first imports torch._dynamo, which takes a second.
    `state`: "step", float32 [], and MOMENTS, [P] each; empty before the first step.
    """

    def __init__(
        self, values: Tensor, learning_rate: float, beta1: float = 0.9, beta2: float = 0.999, epsilon: float = 1e-5
    ) -> None:
        self.values, self.learning_rate = values, learning_rate
        self.beta1, self.beta2, self.epsilon = beta1, beta2, epsilon
        self.state: dict[str, Tensor] = {}

    @torch.no_grad()
    def step(self, skipped: Tensor | None = None) -> None:
        """Make one step; where `skipped`, float32 [] on the values' device, is 1, change nothing."""
        if not self.state:
            self.state = {"step": self.values.new_zeros((), dtype=torch.float32)}
            self.state |= {name: torch.zeros_like(self.values) for name in MOMENTS}
        assert self.values.grad is not None
        adam(
            [self.values],
            [self.values.grad],
            [self.state["exp_avg"]],
            [self.state["exp_avg_sq"]],
            [],
            [self.state["step"]],
            fused=True,  # a third of the others' time on CPU
            found_inf=skipped,
            amsgrad=False,
            beta1=self.beta1,
            beta2=self.beta2,
            lr=self.learning_rate,
            weight_decay=0.0,
            eps=self.epsilon,
            maximize=False,
        )
