"""Losses of perceptrons over Discrete actions, and their gradients, computed by the C library (agents/native)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite

import torch
from torch import Tensor

from agents.algorithms.anchors import PREFIXES
from agents.algorithms.batches import Batch, Minibatch
from agents.native.learning import COLUMNS, TERMS, Learner, Loss, Steps, Trained
from agents.native.library import library
from agents.native.perceptron import DIFFERENTIATED, Layer
from agents.networks import Network
from agents.networks.network import flatten_steps
from agents.operators.unrolls import Unroll
from agents.policies import Policy
from agents.policies.categorical import Categorical

OF_RATIOS = {"approx_kl", "clip_fraction"}  # terms that only a loss of ratios has


class AtOnce:
    """Computes the gradient of an update by the C library; `of` makes one for policies that the library can compute."""

    def __init__(self, network: Network, learner: Learner) -> None:
        self._network, self.learner = network, learner

    @classmethod
    def of(cls, policy: Policy, gradient: Tensor, batch: Batch | Minibatch) -> AtOnce | None:
        """Return an AtOnce that writes gradients into `gradient` [P]; None where torch has to compute `batch`.

        Batches with actions outside the space are left to torch, whose errors say more.
        """
        if policy.has_memory or not policy.computes_plainly or library() is None:
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
        if sum(len(one.gradient) for one in trained) < len(gradient):  # other parameters, or another order of these
            return None
        if not all(one.perceptron.takes(one.layers) for one in trained):
            return None
        least, most = batch.action.aminmax()
        if least < 0 or most >= policy.distribution.size:  # the library would write beyond its memory
            return None
        return cls(policy.network, Learner(trained[0], trained[1] if len(trained) > 1 else None))

    def steps(self, batch: Batch | Minibatch) -> Steps | None:
        """Return the steps of a batch in the library's form, [B, ...]; None where torch has to compute them."""
        observation, action, mask = batch.observation, batch.action, batch.action_mask
        if batch.begins is not None:
            observation, action = flatten_steps(observation), action.flatten()
            mask = None if mask is None else mask.flatten(0, 1)
        x = self._network.flattened(observation)
        return Steps(x, mask, action) if x.dtype is torch.float32 else None

    def unroll(self, policy: Policy, batch: Batch, steps: Steps) -> tuple[Unroll, Tensor]:
        """Return (the unroll, log-probabilities [T, N]) of the weights that learn, without gradients."""
        assert batch.begins is not None
        log_prob, value = self.learner.evaluate(steps)
        shape = batch.begins.shape
        return batch.unroll_of(policy, value.view(shape), {}), log_prob.view(shape)

    def gradient(
        self, steps: Steps, columns: Mapping[str, Tensor], loss: Loss
    ) -> tuple[Tensor, dict[str, Tensor]] | None:
        """Do as `computed`, but return None for a loss that is not finite: torch's error about it says more."""
        found = self.computed(steps, columns, loss)
        return found if isfinite(found[0].item()) else None

    def computed(self, steps: Steps, columns: Mapping[str, Tensor], loss: Loss) -> tuple[Tensor, dict[str, Tensor]]:
        """Write the gradient of a loss of these steps; return (loss, terms).

        `columns`: those that COLUMNS names, [B], and the anchors', [B, A], by PREFIXES.
        """
        means = self.learner.gradient(with_columns(steps, columns, loss), loss)
        exact = dict(zip(TERMS, means.tolist(), strict=True))
        whole = exact["policy_loss"] + loss.value_coefficient * exact["value_loss"]
        whole += loss.upgo_coefficient * exact["upgo_loss"] - loss.entropy_coefficient * exact["entropy"]
        whole += sum(coefficient * exact[f"{name}_kl"] for name, coefficient in loss.anchored.items())
        return torch.tensor(whole), terms_of(loss, means)


def with_columns(steps: Steps, columns: Mapping[str, Tensor], loss: Loss) -> Steps:
    """Give `steps` those of `columns` (see `AtOnce.computed`) that the loss takes; return `steps`."""
    steps.columns = {name: column for name, column in columns.items() if name in COLUMNS}
    steps.anchors = {name: columns[PREFIXES[name]] for name in loss.anchored}
    return steps


def terms_of(loss: Loss, means: Tensor) -> dict[str, Tensor]:
    """Return the terms that `loss` has, float32 [...] each, from `means` float64 [..., 9], which has all TERMS."""
    absent = {f"{name}_kl" for name in PREFIXES if name not in loss.anchored}
    absent |= OF_RATIOS if loss.clip is None else set()
    absent |= set() if loss.upgo_coefficient else {"upgo_loss"}
    rounded = zip(TERMS, means.float().unbind(-1), strict=True)
    return {name: term for name, term in rounded if name not in absent}


def _part(gradient: Tensor, layers: Sequence[Layer]) -> Tensor | None:
    """Return the part of `gradient` that holds these layers' gradients; None unless they lie there side by side."""
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
