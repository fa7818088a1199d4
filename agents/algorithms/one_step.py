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
    """A loss of unrolls: with a gradient, or with one that is written already."""

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
    """Return the loss, whose gradient the library has written; None where torch is to compute it.

    `constants`: what of it has no gradient, [T, N] or [B] of valid steps, of the unroll and the log-probabilities of
    the weights that learn; its mean `rho` is a term. `loss` is without anchors.
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
    # Not finite either is the end of it: peers take part in `constants`, and would wait if torch asked for them again.
    whole, terms = at_once.computed(steps, columns, loss._replace(anchored=anchored))
    terms |= {"rho": found["rho"].mean()} if "rho" in found else {}
    return Computed(unroll, log_prob, whole, terms, inputs_of(unroll, log_prob))
