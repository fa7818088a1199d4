"""The gradient of PPO's loss in one pass: each block of rows goes forward, through the loss, and backward."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from agents.native.perceptron import Layer, Perceptron, at, in_parts, parts_of, work_of

TERMS = ("policy_loss", "value_loss", "entropy", "approx_kl", "clip_fraction")  # as perceptron.c has them


class Surrogate(ctypes.Structure):
    """Coefficients of the loss: those of perceptron.c."""

    _fields_ = [
        (name, ctypes.c_double) for name in ("rows", "clip", "clip_value", "value_coefficient", "entropy_coefficient")
    ]


class Steps(NamedTuple):
    """A minibatch: float32 [B] but for x [B, inputs], `mask` bool [B, A] or None, `action` int64 [B]."""

    x: Tensor
    mask: Tensor | None
    action: Tensor
    log_prob: Tensor
    advantage: Tensor
    target: Tensor
    old_value: Tensor


class Trained(NamedTuple):
    """A perceptron, its layers, and where the gradient goes: float32, weight and bias of each layer in their order."""

    perceptron: Perceptron
    layers: Sequence[Layer]
    gradient: Tensor


def surrogate(policy: Trained, value: Trained | None, steps: Steps, of: Surrogate) -> dict[str, Tensor]:
    """Write the gradient of PPO's loss, and return the loss's TERMS, scalars.

    `value`: None where the value is the second head of `policy`.
    """
    both = [policy] if value is None else [policy, value]
    loaded = policy.perceptron.loaded()
    nets = [one.perceptron.pointed(one.layers) for one in both]
    rows, parts = len(steps.x), parts_of(len(steps.x))
    mask = None if steps.mask is None else steps.mask.contiguous()
    given = Steps(steps.x.contiguous(), mask, *(column.contiguous() for column in steps[2:]))
    sizes = [loaded.gradient_size(net) for net in nets]
    gradients = [torch.empty(parts, size) for size in sizes]
    sums = torch.empty(parts, len(TERMS), dtype=torch.float64)
    room = sum(loaded.work_size(net) for net in nets)

    def part(first: int, last: int, number: int) -> None:
        columns = (given.log_prob, given.advantage, given.target, given.old_value)
        loaded.ppo(
            nets[0],
            nets[1] if value is not None else None,
            at(given.x, first * given.x.shape[1]),
            ctypes.c_int64(last - first),
            None if given.mask is None else at(given.mask, first * given.mask.shape[1]),
            at(given.action, first),
            *(at(column, first) for column in columns),
            ctypes.byref(of),
            at(sums, number * len(TERMS)),
            at(gradients[0], number * sizes[0]),
            at(gradients[1], number * sizes[1]) if value is not None else None,
            work_of(room),
        )

    in_parts(part, rows)
    for one, net, gradient, size in zip(both, nets, gradients, sizes, strict=True):
        loaded.collect(net, at(gradient), ctypes.c_int64(parts), ctypes.c_int64(size), at(one.gradient))
    means = (sums.sum(0) / rows).float()
    return dict(zip(TERMS, means.unbind(), strict=True))
