"""A module's parameters, and their gradients, as views of one tensor each: one norm, one step of the optimizer."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from warren.errors import ConfigurationError

ALIGNED = 128  # numbers; at least the 512 bytes that CUDA's allocator aligns a tensor to


class FlatParameters:
    """All parameters of a module, which become views of `values`, float [P]; without gradients where none are wanted.

    Names and shapes stay. From then on weights have to be loaded in place, and the module must stay on its device. The
    weights of each recurrent layer lie in cuDNN's order at the beginning of a storage; otherwise cuDNN would copy them
    together at every call.
    """

    def __init__(self, module: nn.Module) -> None:
        """Raise ConfigurationError for parameters of several dtypes or on several devices."""
        named = dict(module.named_parameters())
        self.names, self.leaves = list(named), list(named.values())
        parameters = self.leaves
        kinds = {name: f"{parameter.dtype} on {parameter.device}" for name, parameter in named.items()}
        for name, kind in kinds.items():
            if kind != kinds[self.names[0]]:
                raise ConfigurationError(
                    f"parameter {name} is {kind}, {self.names[0]} {kinds[self.names[0]]}; give a network's parameters "
                    "one dtype and one device"
                )
        self._shapes = {name: parameter.shape for name, parameter in named.items()}
        layers = list(_recurrent(module))
        self._starts, size = self._placed(layers)
        self._start_of = {id(parameter): self._starts[name] for name, parameter in named.items()}
        zeros = torch.zeros(size, dtype=parameters[0].dtype, device=parameters[0].device)
        self.values = nn.Parameter(zeros, any(one.requires_grad for one in parameters))
        values = dict(self.split(self.values.detach()))
        if self.values.device.type in ("cpu", "cuda"):
            for names in layers:
                values |= self._beginning_a_storage(names)
        for name, parameter in named.items():
            values[name].copy_(parameter.detach())
            parameter.data = values[name]
        if self.values.requires_grad:
            self.values.grad = torch.zeros_like(self.values)
            for name, gradient in self.split(self.values.grad):
                named[name].grad = gradient

    def _placed(self, layers: list[list[str]]) -> tuple[dict[str, int], int]:
        """Return (where each parameter begins, the total length); between parameters there may be gaps of zeros."""
        leading = {names[0]: names for names in layers}
        starts: dict[str, int] = {}
        end = 0
        for name in self.names:
            if name in leading:
                end = -(-end // ALIGNED) * ALIGNED
            for one in leading.get(name, [name]):
                if one not in starts:
                    starts[one] = end
                    end += self._shapes[one].numel()
        return starts, end

    def _beginning_a_storage(self, names: list[str]) -> Iterator[tuple[str, Tensor]]:
        """Yield each of these consecutive parameters' names and values, views of a storage that begins with them."""
        first, last = self._starts[names[0]], names[-1]
        part = self.values.detach()[first : self._starts[last] + self._shapes[last].numel()]
        storage = torch.from_dlpack(part)  # type: ignore[attr-defined]  # the same memory
        for name in names:
            shape, start = self._shapes[name], self._starts[name] - first
            yield name, storage[start : start + shape.numel()].view(shape)

    @property
    def gradient(self) -> Tensor:
        """Return the gradient, float [P], to which `backward` adds: zero it before."""
        assert self.values.grad is not None
        return self.values.grad

    def start_of(self, parameter: Tensor) -> int:
        """Return where a parameter of the module begins in `values`."""
        return self._start_of[id(parameter)]

    def split(self, flat: Tensor) -> Iterator[tuple[str, Tensor]]:
        """Yield each parameter's name and its part of `flat` [P], as a view in the parameter's shape."""
        for name, shape in self._shapes.items():
            start = self._starts[name]
            yield name, flat[start : start + shape.numel()].view(shape)


def _recurrent(module: nn.Module) -> Iterator[list[str]]:
    """Yield the names of the parameters of each recurrent layer, in cuDNN's order: all weights, then all biases."""
    for prefix, layer in module.named_modules():
        if isinstance(layer, nn.RNNBase):
            names = [f"{prefix}.{name}" if prefix else name for name, _ in layer.named_parameters()]
            yield sorted(names, key=lambda name: name.rpartition(".")[2].startswith("bias"))
