"""Gradients of policy-gradient losses in one pass: each block of rows goes forward, through the loss, and backward."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from agents.native.perceptron import HEADS, Kept, Layer, Perceptron, at, in_parts, parts_of, work_of

COLUMNS = ("log_prob", "advantage", "target", "old_value", "weight", "since", "upgoing")  # in the order of losses.h
ANCHORS = ("teacher", "magnet", "proximal")  # policies that the loss keeps this one near, as losses.h has them
TERMS = (
    *("policy_loss", "value_loss", "entropy", "approx_kl", "clip_fraction", "upgo_loss"),
    *(f"{anchor}_kl" for anchor in ANCHORS),
)
_Anchors = ctypes.c_double * len(ANCHORS)
_Layers = ctypes.c_void_p * HEADS


class LossAsTaken(ctypes.Structure):
    """`Loss` of losses.h."""

    _fields_ = [
        *(
            (name, ctypes.c_double)
            for name in (
                *("rows", "clip", "clip_value"),
                *("value_coefficient", "entropy_coefficient", "upgo_coefficient"),
            )
        ),
        ("anchored", _Anchors),
    ]


class StepsAsTaken(ctypes.Structure):
    """`Steps` of losses.h."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("x", "mask", "action")),
        ("column", ctypes.c_void_p * len(COLUMNS)),
        ("anchors", ctypes.c_void_p * len(ANCHORS)),
    ]


class Loss(NamedTuple):
    """A loss by its coefficients."""

    value_coefficient: float
    entropy_coefficient: float
    clip: float | None = None  # bound on the ratio of probabilities; None: the loss is of log-probabilities
    clip_value: float | None = None  # bound on the value's change from `old_value`
    upgo_coefficient: float = 0.0
    anchored: Mapping[str, float] = {}  # weight of the divergence from each of ANCHORS

    def of(self, rows: int) -> LossAsTaken:
        """Return the library's struct of this loss for minibatches of `rows` rows."""
        bounds = (-1.0 if bound is None else bound for bound in (self.clip, self.clip_value))
        coefficients = self.value_coefficient, self.entropy_coefficient, self.upgo_coefficient
        anchored = _Anchors(*(self.anchored.get(anchor, 0.0) for anchor in ANCHORS))
        return LossAsTaken(rows, *bounds, *coefficients, anchored)


@dataclass
class Steps:
    """Steps of a batch: x float32 [B, inputs], `mask` bool [B, A] or None, `action` int64 [B]."""

    x: Tensor
    mask: Tensor | None
    action: Tensor
    columns: dict[str, Tensor] = field(default_factory=dict)  # those of COLUMNS that the loss has: float32 [B]
    anchors: dict[str, Tensor] = field(default_factory=dict)  # those of ANCHORS in use: their logits [B, A]
    kept: list[Kept] | None = None  # hidden layers of each network, computed with the present weights

    def pointers(self) -> PointersOf:
        """Return the pointers to these tensors for the library."""
        columns = [self.columns.get(name) for name in COLUMNS]
        anchors = [self.anchors.get(name) for name in ANCHORS]
        return PointersOf([self.x, self.mask, self.action, *columns, *anchors])


class PointersOf:
    """Contiguous tensors of equally many rows, or None."""

    def __init__(self, tensors: Sequence[Tensor | None]) -> None:
        self._tensors = [None if one is None else one.contiguous() for one in tensors]

    def __call__(self, row: int) -> StepsAsTaken:
        """Return pointers to the tensors from `row` on."""
        x, mask, action, *others = (
            None if one is None else one.data_ptr() + row * one.stride(0) * one.element_size() for one in self._tensors
        )
        steps = StepsAsTaken(x, mask, action)
        steps.column[:], steps.anchors[:] = others[: len(COLUMNS)], others[len(COLUMNS) :]
        return steps


class Trained(NamedTuple):
    """A perceptron, its layers, and where the gradient goes: float32, weight and bias of each layer in their order."""

    perceptron: Perceptron
    layers: Sequence[Layer]
    gradient: Tensor


class Learner:
    """Computes gradients of losses; weights and gradient must stay where they are."""

    def __init__(self, policy: Trained, value: Trained | None) -> None:
        """`value`: None where the value is the second head of `policy`."""
        self.trained = [policy] if value is None else [policy, value]
        self._loaded = policy.perceptron.loaded()
        self._nets = [one.perceptron.pointed(one.layers) for one in self.trained]
        self._work = sum(self._loaded.work_size(net) for net in self._nets)
        self._sizes = [self._loaded.gradient_size(net) for net in self._nets]
        self._units = [
            sum(len(bias) for _, bias in one.layers[: len(one.layers) - one.perceptron.heads]) for one in self.trained
        ]
        self._parts = 0  # parts that `_gradients` has room for
        self._gradients: list[Tensor] = []

    def gradient(self, steps: Steps, loss: Loss) -> Tensor:
        """Write the gradient of the loss, a mean over the steps; return its TERMS, float64 [9], 0 where absent."""
        loaded, sizes = self._loaded, self._sizes
        rows, parts = len(steps.x), parts_of(len(steps.x))
        if parts > self._parts:
            self._parts, self._gradients = parts, [torch.empty(parts, size) for size in sizes]
        gradients, of, pointers = self._gradients, loss.of(rows), steps.pointers()
        policy, value = self._both()
        sums = torch.empty(parts, len(TERMS), dtype=torch.float64)
        room = self._room(rows)

        def part(first: int, last: int, number: int) -> None:
            loaded.learn(
                policy,
                value,
                ctypes.byref(pointers(first)),
                ctypes.c_int64(last - first),
                ctypes.byref(of),
                self._layers(steps.kept, first),
                at(sums, number * len(TERMS)),
                at(gradients[0], number * sizes[0]),
                at(gradients[1], number * sizes[1]) if value is not None else None,
                work_of(room),
            )

        in_parts(part, rows)
        for one, net, gradient, size in zip(self.trained, self._nets, gradients, sizes, strict=True):
            loaded.collect(net, at(gradient), ctypes.c_int64(parts), ctypes.c_int64(size), at(one.gradient))
        return sums.sum(0) / rows

    def evaluate(self, steps: Steps) -> tuple[Tensor, Tensor]:
        """Return (log-probabilities of the actions, values), float32 [B] each; keep hidden layers for `gradient`."""
        loaded, pointers = self._loaded, steps.pointers()
        rows = len(steps.x)
        log_prob, values = torch.empty(rows), torch.empty(rows)
        policy, value = self._both()
        room = self._room(rows)
        kept = [
            one.perceptron.room_to_keep(loaded.kept_size(net, ctypes.c_int64(rows)))
            for one, net in zip(self.trained, self._nets, strict=True)
        ]
        parts = []

        def part(first: int, last: int, _: int) -> None:
            given = ctypes.byref(pointers(first)), ctypes.c_int64(last - first), self._layers(kept, first)
            parts.append(loaded.evaluate(policy, value, *given, at(log_prob, first), at(values, first), work_of(room)))

        in_parts(part, rows)
        steps.kept = kept if all(parts) else None
        return log_prob, values

    def _layers(self, kept: list[Kept] | None, row: int) -> object:
        """Return pointers to the kept hidden layers from `row` on."""
        if kept is None:
            return None
        places = (at(one.numbers, row * units).value for one, units in zip(kept, self._units, strict=True))
        return _Layers(*places)

    def _both(self) -> tuple[object, object]:
        return self._nets[0], self._nets[1] if len(self._nets) > 1 else None

    def _room(self, rows: int) -> int:
        kinds: int = self._loaded.kinds_size(ctypes.c_int64(rows))
        return int(self._work) + kinds
