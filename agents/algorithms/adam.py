"""Adam on one tensor: Kingma and Ba 2015, by the kernel of torch.optim.Adam(fused=True); AdamW by the same kernel."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor
from torch.optim.adam import adam


class Adam:
    """Steps `values`, float [P], down `values.grad`.

    torch.optim.Adam makes the same steps, but the first in a process imports torch._dynamo, which takes a second.
    `state`: "step", float32 [], and `moments`, [P] each; empty before the first step. `decoupled`: weights decay by
    themselves (AdamW, Loshchilov and Hutter 2019), not as a part of the gradient. `rate`: if set, the learning rate as
    float32 [] on the values' device, which a graph of steps reads anew each time.
    """

    moments: ClassVar[tuple[str, ...]] = ("exp_avg", "exp_avg_sq")  # torch's names

    def __init__(
        self, values: Tensor, learning_rate: float, beta1: float = 0.9, beta2: float = 0.999, epsilon: float = 1e-5
    ) -> None:
        self.values, self.learning_rate = values, learning_rate
        self.beta1, self.beta2, self.epsilon = beta1, beta2, epsilon
        self.weight_decay, self.decoupled = 0.0, False
        self.state: dict[str, Tensor] = {}
        self.rate: Tensor | None = None

    def begin(self) -> None:
        """Create the state for step 0, unless there is a state."""
        if not self.state:
            self.state = {"step": self.values.new_zeros((), dtype=torch.float32)}
            self.state |= {name: torch.zeros_like(self.values) for name in self.moments}

    @torch.no_grad()
    def step(self, skipped: Tensor | None = None) -> None:
        """Make one step; where `skipped`, float32 [] on the values' device, is 1, change nothing."""
        self.begin()
        assert self.values.grad is not None
        adam(
            [self.values],
            [self.values.grad],
            [self.state["exp_avg"]],
            [self.state["exp_avg_sq"]],
            [],
            [self.state["step"]],
            fused=True,  # on a CPU a third of the time that the other implementations take
            found_inf=skipped,
            decoupled_weight_decay=self.decoupled,
            amsgrad=False,
            beta1=self.beta1,
            beta2=self.beta2,
            lr=self.learning_rate if self.rate is None else self.rate,
            weight_decay=self.weight_decay,
            eps=self.epsilon,
            maximize=False,
        )
