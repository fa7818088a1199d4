"""Losses of whole unrolls, for algorithms that make one step of the gradient on each batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from torch import Tensor

from agents.algorithms.batches import Batch
from agents.algorithms.gradient import GradientAlgorithm
from agents.algorithms.numbers import inputs_of
from agents.native.learning import Loss
from agents.operators.unrolls import Unroll


class Computed(NamedTuple):
    """A loss of unrolls, with a gradient, or with its gradient written already."""

    unroll: Unroll
    log_prob: Tensor  # [T, N]
    loss: Tensor
    terms: dict[str, Tensor]
    inputs: dict[str, Tensor]  # the loss was computed from these: for errors


def by_library(
    algorithm: GradientAlgorithm[Any],
    batch: Batch,
    constants: Callable[[Unroll, Tensor], dict[str, Tensor]],
    loss: Loss,
) -> Computed | None:
    """Return the loss, whose gradient the C library has written; None where torch has to compute it.

    `constants` returns the columns without gradients, [T, N] or [B] of valid steps, for the unroll and the learning
    weights' log-probabilities; the mean of `rho` among them is a term. `loss` has no anchors yet.
    """
    at_once = algorithm.at_once(batch)
    steps = None if at_once is None else at_once.steps(batch)
    if at_once is None or steps is None:
        return None
    flat, _ = batch.by_step({})
    lessons = algorithm.lessons(flat)
    if (anchored := algorithm.anchored(lessons)) is None:
        return None
    unroll, log_prob = at_once.unroll(algorithm.policy, batch, steps)
    found = constants(unroll, log_prob)
    if (kept := batch.kept) is not None:
        mask, where = steps.mask, kept.flatten()
        mask = None if mask is None else mask[where]
        steps = replace(steps, x=steps.x[where], mask=mask, action=flat.action, kept=None)
    columns = {name: column.flatten() for name, column in found.items()} | lessons
    # Kept also if it is not finite: torch would call `constants` again, and wait there for peers that do not.
    whole, terms = at_once.computed(steps, columns, loss._replace(anchored=anchored))
    terms |= {"rho": found["rho"].mean()} if "rho" in found else {}
    return Computed(unroll, log_prob, whole, terms, inputs_of(unroll, log_prob))
