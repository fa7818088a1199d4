"""Perceptrons of P players with weights [P, ...], computed by batched products."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh, "relu": torch.relu, "elu": functional.elu, "silu": functional.silu,
}  # fmt: skip
Place = tuple[int, torch.Size]  # offset among a player's numbers, and shape
Layers = tuple[tuple[Place, Place], ...]  # of the weight and of the bias of each layer


class Nets(NamedTuple):
    """Two perceptrons, or one with two heads, whose parameters lie at these places among a player's numbers."""

    activation: str
    policy: Layers  # the last is the value's head, where the value has no layers of its own
    value: Layers

    @property
    def inputs(self) -> int:
        """Return the size of the input."""
        return self.policy[0][0][1][1]

    @property
    def actions(self) -> int:
        """Return the number of logits."""
        return self.policy[-1 if self.value else -2][0][1][0]

    @property
    def places(self) -> list[Place]:
        """Return the places of all parameters, in the order in which `outputs` takes them."""
        return [place for layer in self.policy + self.value for place in layer]

    def parameters(self, values: Tensor) -> list[Tensor]:
        """Return all parameters, [P, *shape] each, as views of `values` [P, n]."""
        return [values[:, start : start + shape.numel()].view(len(values), *shape) for start, shape in self.places]

    def joined(self, parts: Sequence[Tensor], size: int) -> Tensor:
        """Return [P, size] with `parts`, such as gradients of `parameters`, in their places, and 0 elsewhere."""
        return torch.cat(list(self._in_order(parts, size)), 1)

    def _in_order(self, parts: Sequence[Tensor], size: int) -> Iterator[Tensor]:
        end, one = 0, parts[0]
        for (start, shape), part in sorted(zip(self.places, parts, strict=True), key=lambda both: both[0][0]):
            if start > end:
                yield one.new_zeros(len(one), start - end)
            yield part.flatten(1)
            end = start + shape.numel()
        if size > end:
            yield one.new_zeros(len(one), size - end)

    def logits(self, parameters: Sequence[Tensor], x: Tensor) -> Tensor:
        """Return the policy's logits [P, B, A] of inputs x [P, B, inputs]."""
        layers = len(self.policy) - (0 if self.value else 1)
        return self._chain(parameters[: 2 * layers], x)

    def outputs(self, parameters: Sequence[Tensor], x: Tensor) -> tuple[Tensor, Tensor]:
        """Return (logits [P, B, A], values [P, B]) of inputs x [P, B, inputs]."""
        if self.value:
            own = 2 * len(self.policy)
            return self._chain(parameters[:own], x), self._chain(parameters[own:], x).squeeze(-1)
        last = ACTIVATIONS[self.activation](self._chain(parameters[:-4], x))
        return self._chain(parameters[-4:-2], last), self._chain(parameters[-2:], last).squeeze(-1)

    def _chain(self, parameters: Sequence[Tensor], x: Tensor) -> Tensor:
        """Return the output of layers with an activation between them; `parameters`: weight, bias, weight, ..."""
        for number in range(0, len(parameters), 2):
            weight, bias = parameters[number : number + 2]
            x = ACTIVATIONS[self.activation](x) if number else x
            x = torch.baddbmm(bias.unsqueeze(1), x, weight.transpose(1, 2))
        return x
