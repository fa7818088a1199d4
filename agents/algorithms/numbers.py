"""The error for a loss or a gradient that is NaN or infinite, with its likely cause."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn

from agents.operators.unrolls import Unroll
from warren.errors import NotFinite

REMEDY = (
    "the weights are as they were before it; lower learning_rate or max_grad_norm, or scale or cut the rewards "
    "(env.reward_scale, env.reward_clip)"
)


def not_finite(
    where: str, loss: Tensor, terms: Mapping[str, Tensor], inputs: Mapping[str, Tensor], model: nn.Module
) -> NotFinite:
    """Return the error that names what is not finite among `terms` of the loss, `inputs` and `model`'s parameters.

    `where`: the algorithm, the update and the minibatch.
    """
    wrong = [name for name, term in terms.items() if _count(term)]
    if _count(loss):
        culprit = f"{' and '.join(wrong)} of the loss" if wrong else "the loss"
        first = next((term for term in (*terms.values(), loss) if _count(term)), loss)
        said = f"{culprit} {'are' if len(wrong) > 1 else 'is'} {_value(first)}"
    else:
        said = "the gradient's norm is not finite, though the loss is"
    causes = [*_described(inputs), *(f"parameter {text}" for text in _described(dict(model.named_parameters())))]
    if not causes and not _count(loss):
        gradients = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
        causes = [f"gradient of {text}" for text in _described(gradients)]
    if not causes:
        largest = max(inputs, key=lambda name: _largest(inputs[name]), default=None)
        causes = [] if largest is None else [f"the largest is {largest}, up to {_largest(inputs[largest]):g}"]
    because = f"; of what it is made of: {', '.join(causes)}" if causes else ""
    return NotFinite(f"{where}: {said}{because}; {REMEDY}")


def inputs_of(unroll: Unroll, log_prob: Tensor, entropy: Tensor | None = None) -> dict[str, Tensor]:
    """Return the tensors, by name, that an unroll's loss is computed from, except the actors' log-probabilities."""
    return {
        "reward": unroll.reward,
        "final_value": unroll.final_value,
        "bootstrap_value": unroll.bootstrap_value,
        "new value": unroll.value,
        "new log_prob": log_prob,
    } | ({} if entropy is None else {"new entropy": entropy})


def _described(tensors: Mapping[str, Tensor]) -> Iterator[str]:
    for name, tensor in tensors.items():
        if count := _count(tensor):
            yield f"{name} is {_value(tensor)} at {count} of {tensor.numel()}"


def _count(tensor: Tensor) -> int:
    """Return how many of its numbers are not finite."""
    return int((~torch.isfinite(tensor.detach())).sum())


def _value(tensor: Tensor) -> str:
    """Return the first of its numbers that is not finite."""
    flat = tensor.detach().flatten()
    return f"{flat[~torch.isfinite(flat)][0].item()}"


def _largest(tensor: Tensor) -> float:
    return float(tensor.detach().abs().max()) if tensor.numel() else 0.0
