"""Blocks that networks are made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from agents.native.perceptron import Perceptron, computed


class _TanhLayer(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        y = _tanh_layer(x, weight, bias)
        ctx.save_for_backward(x, weight, y)
        return y

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor, Tensor]:
        x, weight, y = ctx.saved_tensors
        gradient = torch.ops.aten.tanh_backward(gradient, y)
        # Two products give the same sums; BLAS takes a seventh of the time for the one whose rows are long.
        wide = weight.shape[0] > weight.shape[1]
        of_weight = (x.t() @ gradient).t() if wide else gradient.t() @ x
        return gradient @ weight if ctx.needs_input_grad[0] else None, of_weight, gradient.sum(0)


def _tanh_layer(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    twice = torch.addmm(bias, x, weight.t(), beta=2, alpha=2)
    return torch.rsub(twice.sigmoid_(), -1, alpha=-2)


def tanh_layer(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Return tanh(x W^T + b), [N, outputs], to within 2e-7, of x [N, inputs].

    On a CPU it is computed as 2 sigmoid(2 z) - 1, in a third of the time of torch's tanh. Torch's tanh is exact to the
    last bit, but would be a third of the time of PPO's update of CartPole's network. Actors and learners use the same
    form, so that a
    policy gives both the same output.
    """
    exact = torch.compiler.is_exporting()  # in an exported model a tanh is one operation, and no slower
    if exact or x.dtype is not torch.float32 or not x.is_cpu or torch.is_autocast_enabled("cpu"):
        return torch.tanh(functional.linear(x, weight, bias))
    if torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad):
        return cast(Tensor, _TanhLayer.apply(x, weight, bias))  # type: ignore[no-untyped-call]
    return _tanh_layer(x, weight, bias)


Layer = Callable[[Tensor, Tensor, Tensor], Tensor]  # x [N, inputs], weight, bias -> [N, outputs]


def _linear_then(activation: Callable[[Tensor], Tensor]) -> Layer:
    return lambda x, weight, bias: activation(functional.linear(x, weight, bias))


HIDDEN_LAYERS: dict[str, Layer] = {
    "tanh": tanh_layer,
    "relu": _linear_then(torch.relu),
    "silu": _linear_then(functional.silu),
    "elu": _linear_then(functional.elu),
}


ORTHOGONAL, UNIFORM = "orthogonal", "uniform"


def orthogonal(layer: nn.Linear, gain: float, generator: torch.Generator) -> nn.Linear:
    """Set orthogonal weights (Saxe et al. 2013) and a bias of 0, as PPO implementations do; return `layer`."""
    nn.init.orthogonal_(layer.weight, gain, generator)
    nn.init.zeros_(layer.bias)
    return layer


def uniform(layer: nn.Linear, generator: torch.Generator) -> nn.Linear:
    """Draw weights and biases within 1 / sqrt(inputs) of 0, as PyTorch does by default; return `layer`."""
    bound = layer.in_features**-0.5 if layer.in_features else 0.0
    for parameter in (layer.weight, layer.bias):
        nn.init.uniform_(parameter, -bound, bound, generator)
    return layer


M = TypeVar("M", bound=nn.Module)


def unset(kind: Callable[..., M], *sizes: int, **options: Any) -> M:
    """Return a layer whose numbers are not set: its own initialisation would draw from torch's global generator.

    torch.nn.utils.skip_init does the same, but imports sympy for it, which takes 1.6 s.
    """
    layer = kind(*sizes, device="meta", **options)
    for name, parameter in list(layer.named_parameters(recurse=False)):
        setattr(layer, name, nn.Parameter(torch.empty(parameter.shape)))
    return layer


def linear(inputs: int, outputs: int, gain: float | None, generator: torch.Generator) -> nn.Linear:
    """Return a layer that begins orthogonal with `gain`, or uniform where that is None."""
    layer = unset(nn.Linear, inputs, outputs)
    return uniform(layer, generator) if gain is None else orthogonal(layer, gain, generator)


class MLP(nn.Module):
    """Linear layers with an activation between them: [N, sizes[0]] -> [N, sizes[-1]].

    Hidden layers start orthogonal with gain sqrt(2), or, if asked for, uniform; the last orthogonal with `output_gain`,
    or as hidden layers where that is None.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        activation: str,
        output_gain: float | None,
        generator: torch.Generator,
        initialization: str = ORTHOGONAL,
    ) -> None:
        super().__init__()
        hidden = None if initialization == UNIFORM else 2**0.5
        gains = [hidden] * (len(sizes) - 2) + [hidden if output_gain is None else output_gain]
        self.layers = nn.ModuleList(
            linear(*layer, generator) for layer in zip(sizes[:-1], sizes[1:], gains, strict=True)
        )
        self._hidden = HIDDEN_LAYERS[activation]
        self.activation = activation
        self.native, self._native_features = Perceptron(activation), Perceptron(activation, heads=0)

    def forward(self, x: Tensor) -> Tensor:
        layers = self.weights()
        if (native := computed(self.native, layers, x)) is not None:
            return native
        *hidden, last = layers
        for pair in hidden:
            x = self._hidden(x, *pair)
        return functional.linear(x, *last)

    def features(self, x: Tensor) -> Tensor:
        """Return [N, sizes[-1]] as `forward` does, with the activation after the last layer too."""
        layers = self.weights()
        if (native := computed(self._native_features, layers, x)) is not None:
            return native
        for pair in layers:
            x = self._hidden(x, *pair)
        return x

    def weights(self) -> list[tuple[Tensor, Tensor]]:
        """Return weight and bias of each layer."""
        # For a batch of 8, module calls and attribute look-ups cost more than the arithmetic, so neither is made here.
        parameters = [cast("dict[str, Tensor]", layer._parameters) for layer in self.layers]
        return [(own["weight"], own["bias"]) for own in parameters]
