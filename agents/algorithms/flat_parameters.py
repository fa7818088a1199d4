"""A module's parameters, and their gradients, as views of one tensor each: one norm, one step of the optimizer."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from warren.errors import ConfigurationError


class FlatParameters:
    """All parameters of a module, which become views of `values`, float [P], in their order.

    Names and shapes stay. From then on weights are to be loaded in place, and the module must stay on its device.
    """

    def __init__(self, module: nn.Module) -> None:
        """Raise ConfigurationError for parameters of several dtypes or on several devices."""
        named = dict(module.named_parameters())
        self.names, parameters = list(named), list(named.values())
        kinds = {name: f"{parameter.dtype} on {parameter.device}" for name, parameter in named.items()}
        for name, kind in kinds.items():
            if kind != kinds[self.names[0]]:
                raise ConfigurationError(
                    f"parameter {name} is {kind}, {self.names[0]} {kinds[self.names[0]]}; give a network's parameters "
                    "one dtype and one device"
                )
        self._shapes = [parameter.shape for parameter in parameters]
        self.values = nn.Parameter(torch.cat([parameter.detach().flatten() for parameter in parameters]))
        self.values.grad = torch.zeros_like(self.values)
        for parameter, (_, values), (_, gradient) in zip(
            parameters, self.split(self.values.detach()), self.split(self.values.grad), strict=True
        ):
            parameter.data, parameter.grad = values, gradient

    @property
    def gradient(self) -> Tensor:
        """Return the gradient, float [P], to which `backward` adds: zero it before."""
        assert self.values.grad is not None
        return self.values.grad

    def split(self, flat: Tensor) -> Iterator[tuple[str, Tensor]]:
        """Yield each parameter's name and its part of `flat` [P], as a view in the parameter's shape."""
        parts = torch.split(flat, [shape.numel() for shape in self._shapes])
        for name, shape, part in zip(self.names, self._shapes, parts, strict=True):
            yield name, part.view(shape)
