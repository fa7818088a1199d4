"""Steps of perceptrons, with a recurrent cell or without, in one call: outputs, draw, value and memory."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from agents.native.perceptron import Layer, Perceptron, at, work_of

LIKELIEST, UNIFORM, EXPONENTIAL = range(3)  # ways to draw Discrete actions
GAUSSIAN, SQUASHED, OF_STATE = range(3)  # kinds of gaussians, as gaussian.h has them
STATE = {"lstm": ("h", "c"), "gru": ("h",)}  # parts of a cell's memory


class _Memory(ctypes.Structure):
    _fields_ = [(name, ctypes.c_void_p) for name in ("h", "c", "h_after", "c_after")]


class Parts(NamedTuple):
    """A perceptron that acts, and its layers."""

    perceptron: Perceptron
    layers: Sequence[Layer]
    prefix: str = ""  # prefix of its memory's names, where it has a cell


class Acting:
    """Computes steps: actions by the first head of the policy's perceptron, and values by the value's perceptron."""

    def __init__(self, policy: Parts, value: Parts | None) -> None:
        """`value`: if it has the policy's perceptron, the value is its second head; None: there is no value."""
        self._policy, self._other = policy, value
        self._valued = value is not None
        if value is not None and value.perceptron is policy.perceptron:
            self._other = None
        self._channels = 0 if value is None else len(value.layers[-1][1])

    def discrete(
        self, x: Tensor, mask: Tensor | None, by: int, chance: Tensor | None, memory: Mapping[str, Tensor]
    ) -> tuple[Tensor, Tensor, Tensor | None, dict[str, Tensor]]:
        """Return (actions int64 [N], log-probabilities [N], values [N, channels] or None, memory) by the logits.

        `mask` bool [N, A]: the legal ones; None: all. `chance`: float32 [N] in [0, 1) where `by` is UNIFORM, [N, A]
        exponentially distributed where EXPONENTIAL, None where LIKELIEST. `memory`: name -> float32 [N, units].
        """
        action = torch.empty(len(x), dtype=torch.int64)
        how = _at(mask), ctypes.c_int64(by), _at(chance)
        return action, *self._called("act", x, memory, how, action)

    def gaussian(
        self, x: Tensor, kind: int, log_std: Tensor, noise: Tensor | None, memory: Mapping[str, Tensor]
    ) -> tuple[Tensor, Tensor, Tensor | None, dict[str, Tensor]]:
        """Return the same as `discrete` for Box actions float32 [N, A], as drawn, before they are squashed.

        `log_std` float32 [A]: the actions' own or, where `kind` is OF_STATE, an addition to the network's. `noise`:
        float32 [N, A], normally distributed; None: the likeliest actions.
        """
        action = torch.empty(len(x), len(log_std))
        how = ctypes.c_int64(kind), at(log_std), _at(noise)
        return action, *self._called("act_gaussian", x, memory, how, action)

    def _called(
        self, name: str, x: Tensor, memory: Mapping[str, Tensor], how: tuple[Any, ...], action: Tensor
    ) -> tuple[Tensor, Tensor | None, dict[str, Tensor]]:
        policy, other, rows = self._policy, self._other, len(x)
        if x.shape[1:] != (inputs := policy.layers[0][0].shape[1],):  # the library would read beyond them
            raise ValueError(f"observations are {list(x.shape)} numbers, and the network takes {[rows, inputs]}")
        loaded, net = policy.perceptron.loaded(), policy.perceptron.pointed(policy.layers)
        room = loaded.work_size(net) + loaded.kinds_size(ctypes.c_int64(rows))
        others = None
        if other is not None:
            others = other.perceptron.pointed(other.layers)
            room += loaded.work_size(others)
        log_prob = torch.empty(rows)
        values = torch.empty(rows, self._channels) if self._valued else None
        memories, after, _held = self._remembered(memory, rows)
        places = at(action), at(log_prob), _at(values)
        getattr(loaded, name)(net, others, at(x), ctypes.c_int64(rows), memories, *how, *places, work_of(room))
        return log_prob, values, after

    def _remembered(self, memory: Mapping[str, Tensor], rows: int) -> tuple[Any, dict[str, Tensor], list[Tensor]]:
        """Return (pointers to the memories before and after, the memory after, tensors to keep until the call ends).

        The pointers are None where no perceptron has a cell. Raises ValueError for a memory of another form.
        """
        memories, after, held = (_Memory * 2)(), dict(memory), []
        for place, one in enumerate((self._policy, self._other)):
            if one is None or one.perceptron.core is None:
                continue
            wanted = [rows, one.perceptron.state_size(one.layers)]
            for part in STATE[one.perceptron.core]:
                if (name := one.prefix + part) not in memory:
                    raise ValueError(f"the memory has no part {name!r}; begin episodes with policy.initial_memory(N)")
                before = memory[name].float().contiguous()
                if list(before.shape) != wanted:
                    raise ValueError(f"memory {name!r} is {list(before.shape)}, and must be {wanted}")
                after[name] = torch.empty_like(before)
                held.append(before)
                setattr(memories[place], part, before.data_ptr())
                setattr(memories[place], f"{part}_after", after[name].data_ptr())
        return memories if held else None, after, held


def _at(tensor: Tensor | None) -> ctypes.c_void_p | None:
    return None if tensor is None else at(tensor)
