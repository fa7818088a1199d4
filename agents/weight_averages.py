"""Moving averages of a policy's weights: policies steadier than the newest one, which moves with every update."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from agents.policies import Policy

Tensors = dict[str, Tensor]
LATE = 4.0  # by how much late updates outweigh early ones; 0: not at all


class WeightAverages:
    """The exponential moving averages of one policy's weights over its updates, one for each of `rates` in (0, 1].

    The n-th update moves an average by max(rate, (1 + LATE) / (n + LATE)) of its distance to the weights. Until the
    rate is reached this is polynomial-decay averaging (Shamir and Zhang 2013). The weights before the first update have
    no part in the average; those of the first updates, which are far from the newest, soon have little. Running
    normalisation is
    averaged as weights are. Without rates nothing is kept.
    """

    def __init__(self, rates: Sequence[float]) -> None:
        self.rates, self.updates = tuple(rates), 0
        self._averages: dict[float, Tensors] = {rate: {} for rate in self.rates}

    def add(self, policy: Policy) -> None:
        """Take in the weights after an update."""
        self.updates += 1
        if not self.rates:
            return
        with torch.no_grad():
            for name, tensor in policy.state_dict().items():
                for rate, average in self._averages.items():
                    if name not in average or not tensor.is_floating_point():
                        average[name] = tensor.detach().clone()
                    else:
                        average[name].lerp_(tensor, max(rate, (1.0 + LATE) / (self.updates + LATE)))

    def of(self, rate: float, policy: Policy) -> Tensors:
        """Return the average at `rate` as a state dict of `policy`: that policy's own before the first update."""
        return self._averages[rate] or policy.state_dict()

    def state(self) -> Tensors:
        """Return all averages as tensors by name, for a checkpoint; `updates` has to be saved beside them."""
        return {
            f"{rate!r}/{name}": tensor for rate, tensors in self._averages.items() for name, tensor in tensors.items()
        }

    def load_state(self, tensors: Mapping[str, Tensor], updates: int, policy: Policy) -> None:
        """Continue from `state`, or begin again if it is of other rates or of another network than `policy`."""
        shapes = {name: tensor.shape for name, tensor in policy.state_dict().items()}
        found: dict[float, Tensors] = {rate: {} for rate in self.rates}
        for key, tensor in tensors.items():
            rate, _, name = key.partition("/")
            if float(rate) in found:
                found[float(rate)][name] = tensor.clone()
        fits = all({name: tensor.shape for name, tensor in one.items()} == shapes for one in found.values())
        self._averages = found if fits else {rate: {} for rate in self.rates}
        self.updates = updates if fits else 0
