"""Steps of the optimizer down a gradient: clipped, averaged over learners, and none where a number is not finite."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from math import isfinite
from typing import Protocol

import torch
from torch import Tensor

from agents.algorithms.adam import MOMENTS, Adam
from agents.algorithms.flat_parameters import FlatParameters
from agents.algorithms.late_checks import LateChecks
from agents.algorithms.peers import Peers
from agents.policies import Policy
from warren.errors import NotFinite


class ErrorMaker(Protocol):
    """Makes the error of a minibatch whose loss or gradient is not finite."""

    def __call__(self, loss: Tensor, terms: Mapping[str, Tensor], inputs: Mapping[str, Tensor]) -> NotFinite: ...


class Descent:
    """A policy's parameters and gradients, each as one tensor, and Adam on them."""

    def __init__(self, policy: Policy, learning_rate: float) -> None:
        self.parameters = FlatParameters(policy)
        self.optimizer = Adam(self.parameters.values, learning_rate)
        self.late = LateChecks(self.parameters.gradient) if policy.device.type == "cuda" else None

    def step(
        self,
        loss: Tensor,
        steps: int,
        peers: Peers,
        max_grad_norm: float,
        terms: Mapping[str, Tensor],
        inputs: Mapping[str, Tensor],
        error: ErrorMaker,
    ) -> Tensor:
        """Make one step down the gradient of all learners' losses; return its norm before it is clipped.

        See `GradientAlgorithm.descend`.
        """
        gradient = self.parameters.gradient.zero_()
        loss.backward()  # type: ignore[no-untyped-call]
        loss_of_all = peers.average(gradient, loss.detach(), steps)
        grad_norm: Tensor = torch.linalg.vector_norm(gradient)
        number = loss_of_all + grad_norm  # NaN and infinity outlive a sum
        failed: Tensor | None = None
        if self.late is not None and peers.size == 1:  # several learners wait for each other at each minibatch
            failed = self.late.failed(number, partial(error, loss.detach(), _detached(terms), _detached(inputs)))
        elif not isfinite(number.item()):
            raise error(loss, terms, inputs)
        gradient.mul_((max_grad_norm / (grad_norm + 1e-6)).clamp(max=1.0))
        self.optimizer.step(failed)
        return grad_norm

    def state(self) -> dict[str, Tensor]:
        """Return Adam's moments and count of steps by parameter; {} before the first step."""
        state = self.optimizer.state
        if not state:
            return {}
        tensors = {f"adam.step.{name}": state["step"].clone() for name in self.parameters.names}
        for key in MOMENTS:
            tensors |= {f"adam.{key}.{name}": part for name, part in self.parameters.split(state[key])}
        return tensors

    def load_state(self, tensors: Mapping[str, Tensor]) -> None:
        """Continue from what `state` returned."""
        values = self.parameters.values
        self.optimizer.state = {}
        steps = [tensors[key] for name in self.parameters.names if (key := f"adam.step.{name}") in tensors]
        if steps:
            moments = {key: torch.zeros_like(values) for key in MOMENTS}
            self.optimizer.state = {"step": steps[0].to(values.device, copy=True), **moments}
            for key, moment in moments.items():
                for name, part in self.parameters.split(moment):
                    if f"adam.{key}.{name}" in tensors:  # a parameter that no gradient had reached has none
                        part.copy_(tensors[f"adam.{key}.{name}"])


def _detached(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach() for name, tensor in tensors.items()}
