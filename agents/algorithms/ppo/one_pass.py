"""PPO's minibatches of perceptrons over Discrete actions: their gradient by one call of the library."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import isfinite

import torch
from torch import Tensor

from agents.algorithms.anchors import PREFIXES
from agents.algorithms.batches import Batch, Minibatch
from agents.algorithms.ppo.config import PPOConfig
from agents.native.library import library
from agents.native.perceptron import DIFFERENTIATED, Layer
from agents.native.surrogate import TERMS, Steps, Surrogate, SurrogateGradient, Trained
from agents.networks import Network
from agents.policies import Policy
from agents.policies.categorical import Categorical

TAKEN = {"log_prob", "value", "target", "advantage"}  # what the loss is of, beside anchors of one head


class GradientAtOnce:
    """The gradients of one update's minibatches; `of` makes one where the library computes them."""

    def __init__(
        self,
        network: Network,
        computed: SurrogateGradient,
        config: PPOConfig,
        entropy: float,
        anchors: dict[str, float],
    ) -> None:
        self._network, self._computed, self._anchors = network, computed, anchors
        clip_value = -1.0 if config.clip_range_value is None else config.clip_range_value
        coefficients = Surrogate.coefficients(anchors)
        self._how = Surrogate(0, config.clip_range, clip_value, config.value_coefficient, entropy, coefficients)
        absent = {f"{name}_kl" for name in PREFIXES} - {f"{name}_kl" for name in anchors}
        self._places = {name: place for place, name in enumerate(TERMS) if name not in absent}
        of_loss = {"policy_loss": 1.0, "value_loss": config.value_coefficient, "entropy": -entropy}
        of_loss |= {f"{name}_kl": coefficient for name, coefficient in anchors.items()}
        self._of_loss = [(self._places[name], coefficient) for name, coefficient in of_loss.items()]

    @classmethod
    def of(
        cls,
        policy: Policy,
        gradient: Tensor,
        batch: Batch | Minibatch,
        columns: Collection[str],
        config: PPOConfig,
        entropy_coefficient: float,
        anchors: Mapping[str, float],
    ) -> GradientAtOnce | None:
        """Return what writes into `gradient` [P], or None where torch is to compute minibatches of `batch`.

        `columns`: the names of what the loss is of. `anchors`: coefficients of the divergences, by the names of
        PREFIXES. Factors of a teacher's heads and actions that there are not are torch's, whose errors say more.
        """
        anchored = {name: anchors[name] for name, prefix in PREFIXES.items() if prefix in columns}
        if len(columns) != len(TAKEN) + len(anchored) or not TAKEN.issubset(columns):
            return None
        if "teacher" in anchored and config.teacher_heads is not None:
            return None
        if batch.begins is not None or not policy.computes_plainly or library() is None:
            return None
        if type(policy.distribution) is not Categorical or policy.channels or policy.value_scale is not None:
            return None
        found = policy.network.perceptrons(True)
        if found is None or found.value is None or found.policy.activation not in DIFFERENTIATED:
            return None
        trained = [Trained(found.policy, found.of_policy, gradient)]
        if found.value is not found.policy:
            trained.append(Trained(found.value, found.of_value, gradient))
        trained = [one._replace(gradient=part) for one in trained if (part := _part(gradient, one.layers)) is not None]
        if sum(len(one.gradient) for one in trained) < len(gradient):  # parameters of others, or not in this order
            return None
        if not all(one.perceptron.takes(one.layers) for one in trained):
            return None
        least, most = batch.action.aminmax()
        if least < 0 or most >= policy.distribution.size:  # the library would write beyond its memory
            return None
        computed = SurrogateGradient(trained[0], trained[1] if len(trained) > 1 else None)
        return cls(policy.network, computed, config, entropy_coefficient, anchored)

    def __call__(self, minibatch: Minibatch, advantage: Tensor) -> tuple[Tensor, dict[str, Tensor]] | None:
        """Write the gradient of a minibatch's loss; return (loss, terms), or None where torch is to compute them.

        `advantage`: standardised if it is to be. A loss that is not finite is torch's, whose error says more.
        """
        columns, x = minibatch.columns, self._network.flattened(minibatch.observation)
        if x.dtype is not torch.float32:
            return None
        anchors = {name: columns[PREFIXES[name]] for name in self._anchors}
        self._how.rows = len(x)
        means = self._computed(
            Steps(
                x, minibatch.action_mask, minibatch.action, columns["log_prob"], advantage, columns["target"],
                columns["value"], anchors,
            ),
            self._how,
        )  # fmt: skip
        exact, rounded = means.tolist(), means.float().unbind()
        loss = sum(exact[place] * coefficient for place, coefficient in self._of_loss)
        if not isfinite(loss):
            return None
        return torch.tensor(loss), {name: rounded[place] for name, place in self._places.items()}


def _part(gradient: Tensor, layers: Sequence[Layer]) -> Tensor | None:
    """Return the part of `gradient` that these layers' own are views of, if they follow each other there."""
    parameters = [one for layer in layers for one in layer]
    start = end = None
    for one in parameters:
        if one.grad is None or not one.requires_grad or (end is not None and one.grad.data_ptr() != end):
            return None
        start = one.grad.data_ptr() if start is None else start
        end = one.grad.data_ptr() + 4 * one.numel()
    assert start is not None
    first = (start - gradient.data_ptr()) // 4
    size = sum(one.numel() for one in parameters)
    return gradient[first : first + size] if 0 <= first <= len(gradient) - size else None
