"""Steps of the optimizer down a gradient: clipped, averaged over learners, left out where a number is not finite."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from math import isfinite
from typing import Protocol

import torch
from torch import Tensor, nn

from agents.algorithms.flat_parameters import FlatParameters
from agents.algorithms.late_checks import LateChecks
from agents.algorithms.optimizers import OptimizerConfig, configure, optimizer_of
from agents.algorithms.peers import Peers
from warren.errors import ConfigurationError, NotFinite


class ErrorMaker(Protocol):
    """Makes the error of a minibatch whose loss or gradient is not finite."""

    def __call__(self, loss: Tensor, terms: Mapping[str, Tensor], inputs: Mapping[str, Tensor]) -> NotFinite: ...


class Descent:
    """A module's parameters and gradients, each as one tensor, and the optimizer that the settings name for them."""

    def __init__(self, module: nn.Module, config: OptimizerConfig, others: Iterable[nn.Module] = ()) -> None:
        """Raise ConfigurationError for names in `learning_rates` that no parameter's name begins with, neither of this
        module nor of `others`, which have descents of their own."""
        self.parameters = FlatParameters(module)
        self._others = [name for other in others for name, _ in other.named_parameters()]
        self.optimizer = optimizer_of(config, self.parameters.values)
        self._kind = "rmsprop" if config.optimizer == "rmsprop" else "adam"  # for the names of its state
        self._factors: tuple[Mapping[str, float], Tensor | None] = {}, None  # learning_rates, and [P] made of them
        self.late = LateChecks(self.parameters.gradient) if self.parameters.values.device.type == "cuda" else None
        self.configure(config, config.learning_rate_at(0))

    def configure(self, config: OptimizerConfig, learning_rate: float) -> None:
        """Take over settings, which may have changed. Raises ConfigurationError as the constructor does."""
        configure(self.optimizer, config)
        self.optimizer.learning_rate = learning_rate
        if self._factors[0] != config.learning_rates:
            self._factors = config.learning_rates, self._factor_of_each(config.learning_rates)

    def _factor_of_each(self, given: Mapping[str, float]) -> Tensor | None:
        names = self.parameters.names + self._others
        for prefix in given:
            if not any(name.startswith(prefix) for name in names):
                raise ConfigurationError(
                    f"learning_rates: no parameter's name begins with {prefix!r}; there are {', '.join(names)}"
                )
        if not given:
            return None
        factors = torch.ones_like(self.parameters.values)
        for name, part in self.parameters.split(factors):
            longest = max((prefix for prefix in given if name.startswith(prefix)), key=len, default=None)
            if longest is not None:
                part.fill_(given[longest])
        return factors

    def differentiate(self, loss: Tensor) -> None:
        """Write the gradient of `loss` into `parameters.gradient`; no other module's gradient is touched."""
        leaves = [leaf for leaf in self.parameters.leaves if leaf.requires_grad]
        found = torch.autograd.grad(loss, leaves, allow_unused=True)
        wanted = zip(leaves, found, strict=True)
        gradients = [torch.zeros_like(leaf) if gradient is None else gradient for leaf, gradient in wanted]
        torch._foreach_copy_([leaf.grad for leaf in leaves if leaf.grad is not None], gradients)

    def step(
        self,
        loss: Tensor,
        steps: int,
        peers: Peers,
        max_grad_norm: float | None,
        terms: Mapping[str, Tensor],
        inputs: Mapping[str, Tensor],
        error: ErrorMaker,
    ) -> Tensor:
        """Make one step down the gradient of all learners' losses; return its norm before it is clipped.

        See `GradientAlgorithm.descend`. The gradient is not clipped where `max_grad_norm` is None. Where `loss` does
        not require a gradient, `parameters.gradient` already holds it.
        """
        gradient = self.parameters.gradient
        if loss.requires_grad:
            gradient.zero_()
            loss.backward()  # type: ignore[no-untyped-call]
        loss_of_all = peers.average(gradient, loss.detach(), steps)
        grad_norm: Tensor = torch.linalg.vector_norm(gradient)
        number = loss_of_all + grad_norm  # NaN and infinity outlive a sum
        failed: Tensor | None = None
        if self.late is not None and peers.size == 1:  # several learners wait for each other at each minibatch anyway
            failed = self.late.failed(number, partial(error, loss.detach(), _detached(terms), _detached(inputs)))
        elif not isfinite(number.item()):
            raise error(loss, terms, inputs)
        if max_grad_norm is not None:
            gradient.mul_((max_grad_norm / (grad_norm + 1e-6)).clamp(max=1.0))
        factors = self._factors[1]
        before = None if factors is None else self.parameters.values.detach().clone()
        self.optimizer.step(failed)
        if factors is not None and before is not None:  # a step of either optimizer is proportional to the rate
            with torch.no_grad():
                self.parameters.values.copy_(torch.lerp(before, self.parameters.values, factors))
        return grad_norm

    @property
    def factors(self) -> Tensor | None:
        """Return the factor of each parameter's learning rate, float [P]; None where all are 1."""
        return self._factors[1]

    def state(self) -> dict[str, Tensor]:
        """Return the optimizer's moments and count of steps by parameter; {} before the first step."""
        state, kind = self.optimizer.state, self._kind
        if not state:
            return {}
        tensors = {f"{kind}.step.{name}": state["step"].clone() for name in self.parameters.names}
        for key in self.optimizer.moments:
            tensors |= {f"{kind}.{key}.{name}": part for name, part in self.parameters.split(state[key])}
        return tensors

    def load_state(self, tensors: Mapping[str, Tensor]) -> None:
        """Continue from what `state` returned."""
        values, kind = self.parameters.values, self._kind
        self.optimizer.state = {}
        steps = [tensors[key] for name in self.parameters.names if (key := f"{kind}.step.{name}") in tensors]
        if steps:
            moments = {key: torch.zeros_like(values) for key in self.optimizer.moments}
            self.optimizer.state = {"step": steps[0].to(values.device, copy=True), **moments}
            for key, moment in moments.items():
                for name, part in self.parameters.split(moment):
                    if f"{kind}.{key}.{name}" in tensors:  # a parameter that no gradient had reached has none
                        part.copy_(tensors[f"{kind}.{key}.{name}"])


def _detached(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach() for name, tensor in tensors.items()}
