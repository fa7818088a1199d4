"""PPO's minibatches of perceptrons over Discrete actions: their gradient by one call of the library."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

import torch
from torch import Tensor

from agents.algorithms.anchors import PREFIXES
from agents.algorithms.batches import Minibatch
from agents.algorithms.ppo.config import PPOConfig
from agents.native.library import library
from agents.native.perceptron import DIFFERENTIATED, Layer
from agents.native.surrogate import Steps, Surrogate, Trained, surrogate
from agents.policies import Policy
from agents.policies.categorical import Categorical

TAKEN = {"log_prob", "value", "target", "advantage"}  # what the loss is of, beside anchors of one head


def gradient_at_once(
    policy: Policy,
    gradient: Tensor,
    minibatch: Minibatch,
    advantage: Tensor,
    config: PPOConfig,
    entropy_coefficient: float,
    anchor_coefficient: Callable[[str], float],
) -> tuple[Tensor, dict[str, Tensor]] | None:
    """Write the gradient [P] of the loss into `gradient`; return (loss, terms), or None where torch is to compute them.

    `advantage`: standardised if it is to be. `anchor_coefficient`: that of the divergence from an anchor, by the names
    of PREFIXES. Factors of a teacher's heads are torch's. A loss that is not finite and actions that there are not are
    torch's too, whose errors say more.
    """
    columns = minibatch.columns
    anchors = {name: columns[prefix] for name, prefix in PREFIXES.items() if prefix in columns}
    if len(columns) != len(TAKEN) + len(anchors) or not columns.keys() >= TAKEN:
        return None
    if "teacher" in anchors and config.teacher_heads is not None:
        return None
    if minibatch.begins is not None or not policy.computes_plainly or library() is None:
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
    x = policy.network.flattened(minibatch.observation)
    if x.dtype is not torch.float32 or not all(one.perceptron.takes(one.layers) for one in trained):
        return None
    action = cast(Tensor, minibatch.action)
    least, most = action.aminmax()
    if least < 0 or most >= policy.distribution.size:  # the library would write beyond its memory
        return None
    steps = Steps(
        x, cast("Tensor | None", minibatch.action_mask), action, columns["log_prob"], advantage, columns["target"],
        columns["value"], anchors,
    )  # fmt: skip
    clip_value = -1.0 if config.clip_range_value is None else config.clip_range_value
    coefficients = {name: anchor_coefficient(name) for name in anchors}
    settings = Surrogate(
        len(x), config.clip_range, clip_value, config.value_coefficient, entropy_coefficient,
        Surrogate.coefficients(coefficients),
    )  # fmt: skip
    terms = surrogate(trained[0], trained[1] if len(trained) > 1 else None, steps, settings)
    loss = terms["policy_loss"] + config.value_coefficient * terms["value_loss"]
    loss = loss - entropy_coefficient * terms["entropy"]
    for name, coefficient in coefficients.items():
        loss = loss + coefficient * terms[f"{name}_kl"]
    return (loss, terms) if loss.isfinite() else None


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
