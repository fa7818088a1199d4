"""The gradient of PPO's loss in one pass: each block of rows goes forward, through the loss, and backward."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from agents.native.perceptron import Layer, Perceptron, at, in_parts, parts_of, work_of

ANCHORS = ("teacher", "magnet", "proximal")  # policies that the loss keeps this one near, as losses.h has them
TERMS = (
    *("policy_loss", "value_loss", "entropy", "approx_kl", "clip_fraction"),
    *(f"{anchor}_kl" for anchor in ANCHORS),
)
_Anchors = ctypes.c_double * len(ANCHORS)


class Surrogate(ctypes.Structure):
    """Coefficients of the loss: those of losses.h."""

    _fields_ = [
        *(
            (name, ctypes.c_double)
            for name in ("rows", "clip", "clip_value", "value_coefficient", "entropy_coefficient")
        ),
        ("anchored", _Anchors),
    ]

    @staticmethod
    def coefficients(anchored: dict[str, float]) -> _Anchors:  # type: ignore[valid-type]
        """Return those of the divergences by anchor, for the field `anchored`; 0 of others."""
        return _Anchors(*(anchored.get(anchor, 0.0) for anchor in ANCHORS))


class _Steps(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("x", "mask", "action", "log_prob", "advantage", "target", "old_value")),
        ("anchors", ctypes.c_void_p * len(ANCHORS)),
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
    anchors: dict[str, Tensor]  # of ANCHORS those that there are: their logits [B, A], masked as the policy's


class Trained(NamedTuple):
    """A perceptron, its layers, and where the gradient goes: float32, weight and bias of each layer in their order."""

    perceptron: Perceptron
    layers: Sequence[Layer]
    gradient: Tensor


class SurrogateGradient:
    """Computes the gradient of PPO's loss, as long as weights and gradient stay where they are."""

    def __init__(self, policy: Trained, value: Trained | None) -> None:
        """`value`: None where the value is the second head of `policy`."""
        self._trained = [policy] if value is None else [policy, value]
        self._loaded = policy.perceptron.loaded()
        self._nets = [one.perceptron.pointed(one.layers) for one in self._trained]
        self._work = sum(self._loaded.work_size(net) for net in self._nets)
        self._sizes = [self._loaded.gradient_size(net) for net in self._nets]
        self._parts = 0  # that there is room for
        self._gradients: list[Tensor] = []

    def __call__(self, steps: Steps, of: Surrogate) -> Tensor:
        """Write the gradient, and return the loss's TERMS, float64 [8]; those of absent anchors are 0."""
        loaded, nets, sizes = self._loaded, self._nets, self._sizes
        rows, parts = len(steps.x), parts_of(len(steps.x))
        columns = [None if one is None else one.contiguous() for one in steps[:-1]]
        anchors = [steps.anchors.get(name) for name in ANCHORS]
        anchors = [None if one is None else one.contiguous() for one in anchors]
        if parts > self._parts:
            self._parts, self._gradients = parts, [torch.empty(parts, size) for size in sizes]
        gradients = self._gradients
        sums = torch.empty(parts, len(TERMS), dtype=torch.float64)
        room = self._work + loaded.kinds_size(ctypes.c_int64(rows))

        def part(first: int, last: int, number: int) -> None:
            given = _Steps(*(_from(column, first) for column in columns))
            given.anchors[:] = [_from(one, first) for one in anchors]
            loaded.ppo(
                nets[0],
                nets[1] if len(nets) > 1 else None,
                ctypes.byref(given),
                ctypes.c_int64(last - first),
                ctypes.byref(of),
                at(sums, number * len(TERMS)),
                at(gradients[0], number * sizes[0]),
                at(gradients[1], number * sizes[1]) if len(nets) > 1 else None,
                work_of(room),
            )

        in_parts(part, rows)
        for one, net, gradient, size in zip(self._trained, nets, gradients, sizes, strict=True):
            loaded.collect(net, at(gradient), ctypes.c_int64(parts), ctypes.c_int64(size), at(one.gradient))
        return sums.sum(0) / rows


def _from(column: Tensor | None, row: int) -> int | None:
    """Return where a row of a contiguous column begins."""
    return None if column is None else column.data_ptr() + row * column.stride(0) * column.element_size()
