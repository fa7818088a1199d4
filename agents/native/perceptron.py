"""Perceptrons with torch's weights, computed by the library: `Net` of network.h, and the calls that take one."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self, cast

import torch
from torch import Tensor

from agents.native.library import library

LAYERS, HEADS, BLOCK = 16, 2, 64  # constants of network.h and vectors.h, where BLOCK is PLACES
ACTIVATIONS = {"tanh": 0, "relu": 1, "elu": 2, "silu": 3}
DIFFERENTIATED = frozenset({"tanh", "relu", "elu"})  # activations whose derivative follows from their output
WIDEST = 512  # inputs and units; BLAS computes the products of wider layers
A_THREAD = 8 * BLOCK  # least rows of a thread; with fewer it costs more than it saves

CORES = {None: 0, "lstm": 1, "gru": 2}
GATES = {"lstm": 4, "gru": 3}

Layer = tuple[Tensor, Tensor]  # weight [units, units before], bias [units]


class _Net(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_int64) for name in ("inputs", "layers", "heads", "activation")),
        ("units", ctypes.c_int64 * LAYERS),
        ("weight", ctypes.c_void_p * LAYERS),
        ("bias", ctypes.c_void_p * LAYERS),
        ("outputs", ctypes.c_int64 * HEADS),
        ("head_weight", ctypes.c_void_p * HEADS),
        ("head_bias", ctypes.c_void_p * HEADS),
        ("core", ctypes.c_int64),
        ("state", ctypes.c_int64),
        ("core_weight", ctypes.c_void_p * 2),
        ("core_bias", ctypes.c_void_p * 2),
    ]


_Pointers = ctypes.c_void_p * HEADS


class Kept:
    """Numbers that `forward` keeps for `backward`, which may run more than once; afterwards they become `spare`."""

    def __init__(self, numbers: Tensor, spare: list[Tensor]) -> None:
        self.numbers, self._spare = numbers, spare

    def __del__(self) -> None:
        self._spare.append(self.numbers)


class Perceptron:
    """Hidden layers and up to two linear heads on the last of them; without a head, the last layer's outputs.

    It has no weights: each call is given them, and reads them where they are. Between hidden layers and heads there may
    be a recurrent `core`, whose two "layers" are its gates' weights for its input and for its state; a perceptron with
    a core only acts.
    """

    def __init__(self, activation: str, heads: int = 1, core: str | None = None) -> None:
        self.activation, self.heads, self.core = activation, heads, core
        self._net = _Net(heads=heads, activation=ACTIVATIONS[activation], core=CORES[core])
        self._pointers: list[int] = []
        self._spare: list[Tensor] = []  # buffers of graphs that are gone, to be used again

    def __deepcopy__(self, memo: object) -> Self:
        return type(self)(self.activation, self.heads, self.core)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.activation, self.heads, self.core)

    def takes(self, layers: Sequence[Layer]) -> bool:
        """Return True for layers, the heads last, that the library can compute: float32 on the CPU, not too wide."""
        hidden = self._hidden(layers)
        gates = layers[hidden : hidden + 2] if self.core else []
        return (
            0 <= hidden <= LAYERS
            and len(layers) > 0
            and all(weight.shape[1] <= WIDEST for weight, _ in layers)
            and all(len(bias) <= WIDEST for _, bias in (*layers[:hidden], *layers[hidden + len(gates) :]))
            and all(
                part.dtype is torch.float32 and part.is_cpu and part.is_contiguous() for pair in layers for part in pair
            )
        )

    def forward(self, layers: Sequence[Layer], x: Tensor, keep: bool = False) -> tuple[list[Tensor], Kept | None]:
        """Return (outputs [N, units] of each head, what `backward` needs if `keep`) of x float32 [N, inputs]."""
        loaded, net = self.loaded(), self.pointed(layers)
        rows = len(x)
        outputs = [x.new_empty(rows, len(bias)) for _, bias in layers[len(layers) - max(1, self.heads) :]]
        kept = self.room_to_keep(loaded.kept_size(net, ctypes.c_int64(rows))) if keep else None
        units = sum(len(bias) for _, bias in layers[: len(layers) - self.heads])

        def part(first: int, last: int, _: int) -> None:
            loaded.forward(
                net,
                at(x, first * x.shape[1]),
                ctypes.c_int64(last - first),
                _Pointers(*(at(y, first * y.shape[1]).value for y in outputs)),
                None if kept is None else at(kept.numbers, first * units),
                work_of(loaded.work_size(net)),
            )

        in_parts(part, rows)
        return outputs, kept

    def backward(
        self, layers: Sequence[Layer], x: Tensor, kept: Kept, derivatives: Sequence[Tensor | None], inputs: bool
    ) -> tuple[Tensor | None, list[Tensor]]:
        """Return (derivatives [N, inputs] at x if `inputs`, those by weight and bias of each layer).

        `derivatives` [N, units]: at the outputs of each head; None: zeros. `kept`: from `forward`.
        """
        loaded, net = self.loaded(), self.pointed(layers)
        rows, parts = len(x), parts_of(len(x))
        units = sum(len(bias) for _, bias in layers[: len(layers) - self.heads])
        at_x = torch.empty_like(x) if inputs else None
        apart = loaded.gradient_size(net)
        gradients = torch.empty(parts, apart)
        given = [None if part is None else part.contiguous() for part in derivatives]

        def part(first: int, last: int, number: int) -> None:
            loaded.backward(
                net,
                at(x, first * x.shape[1]),
                ctypes.c_int64(last - first),
                at(kept.numbers, first * units),
                _Pointers(*(None if y is None else at(y, first * y.shape[1]).value for y in given)),
                None if at_x is None else at(at_x, first * x.shape[1]),
                at(gradients, number * apart),
                work_of(loaded.work_size(net)),
            )

        in_parts(part, rows)
        parameters = [one for layer in layers for one in layer]
        gradient = torch.empty(sum(one.numel() for one in parameters))
        loaded.collect(net, at(gradients, 0), ctypes.c_int64(parts), ctypes.c_int64(apart), at(gradient, 0))
        split = torch.split(gradient, [one.numel() for one in parameters])
        return at_x, [part.view(one.shape) for part, one in zip(split, parameters, strict=True)]

    def state_size(self, layers: Sequence[Layer]) -> int:
        """Return the number of units of the core's state."""
        return layers[self._hidden(layers) + 1][0].shape[1]

    def _hidden(self, layers: Sequence[Layer]) -> int:
        return len(layers) - self.heads - (2 if self.core else 0)

    def loaded(self) -> ctypes.CDLL:
        """Return the library, which exists where `takes` was asked."""
        return cast(ctypes.CDLL, library())

    def pointed(self, layers: Sequence[Layer]) -> Any:
        """Return a pointer to the Net with the present addresses of these weights."""
        net, pointers = self._net, [part.data_ptr() for layer in layers for part in layer]
        if pointers != self._pointers:
            hidden = self._hidden(layers)
            net.inputs, net.layers = layers[0][0].shape[1], hidden
            for place, (_, bias) in enumerate(layers):
                weight_at, bias_at = pointers[2 * place : 2 * place + 2]
                head = place - (len(layers) - self.heads)
                if place < hidden:
                    net.units[place], net.weight[place], net.bias[place] = len(bias), weight_at, bias_at
                elif head < 0:
                    net.core_weight[place - hidden], net.core_bias[place - hidden] = weight_at, bias_at
                    net.state = layers[place][0].shape[1]  # finally that of the gates from the state
                else:
                    net.outputs[head], net.head_weight[head], net.head_bias[head] = len(bias), weight_at, bias_at
            self._pointers = pointers
        return ctypes.byref(net)

    def room_to_keep(self, size: int) -> Kept:
        """Return room for `size` numbers, which is given out again once nobody holds it."""
        # New memory costs as much as the layers: the kernel clears each page of it.
        while self._spare:
            spare = self._spare.pop()
            if size <= spare.numel() <= 2 * size:
                return Kept(spare, self._spare)
        return Kept(torch.empty(size), self._spare)


class _Differentiated(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, perceptron: Perceptron, x: Tensor, *parameters: Tensor) -> Tensor:
        layers = list(zip(parameters[::2], parameters[1::2], strict=True))
        (y,), ctx.kept = perceptron.forward(layers, x, keep=True)
        ctx.perceptron = perceptron
        ctx.save_for_backward(x, *parameters)
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, derivative: Tensor) -> tuple[Tensor | None, ...]:
        x, *parameters = ctx.saved_tensors
        layers = list(zip(parameters[::2], parameters[1::2], strict=True))
        at_x, gradients = ctx.perceptron.backward(layers, x, ctx.kept, [derivative], ctx.needs_input_grad[1])
        return None, at_x, *gradients


def computed(perceptron: Perceptron, layers: Sequence[Layer], x: Tensor) -> Tensor | None:
    """Return the one output [N, units] of x [N, inputs], with gradients where torch has them; None: torch must do it.

    Equal to torch's within 1e-6 of the largest number in the sums.
    """
    if torch.compiler.is_compiling() or library() is None or torch.is_autocast_enabled("cpu"):
        return None
    if x.dim() != 2 or not len(x) or x.dtype is not torch.float32 or not x.is_cpu or not perceptron.takes(layers):
        return None
    if x.shape[1] != layers[0][0].shape[1]:  # the library would read beyond x; torch says what is wrong
        return None
    parameters = [one for layer in layers for one in layer]
    x = x.contiguous()
    if torch.is_grad_enabled() and (x.requires_grad or any(one.requires_grad for one in parameters)):
        if perceptron.activation not in DIFFERENTIATED:
            return None
        return cast(Tensor, _Differentiated.apply(perceptron, x, *parameters))  # type: ignore[no-untyped-call]
    return perceptron.forward(layers, x)[0][0]


def at(tensor: Tensor, number: int = 0) -> ctypes.c_void_p:
    """Return the address of the number at index `number` of a contiguous tensor."""
    return ctypes.c_void_p(tensor.data_ptr() + tensor.element_size() * number)


_own = threading.local()  # the library's working memory, one for each thread


def work_of(size: int) -> ctypes.c_void_p:
    """Return working memory for `size` numbers, this thread's own."""
    work: Tensor | None = getattr(_own, "work", None)
    if work is None or work.numel() < size:
        work = _own.work = torch.empty(size)
    return at(work, 0)


def parts_of(rows: int) -> int:
    """Return the number of threads that share these rows."""
    return max(1, min(torch.get_num_threads(), rows // A_THREAD))


_pools: dict[tuple[int, int], ThreadPoolExecutor] = {}  # by process, since a fork has no threads


def pool_of(parts: int) -> ThreadPoolExecutor:
    """Return a pool whose threads, with the caller's own, number `parts`, at least two."""
    key = os.getpid(), parts
    pool = _pools.get(key)
    if pool is None:
        pool = _pools[key] = ThreadPoolExecutor(parts - 1, "perceptron")
    return pool


def in_parts(part: Any, rows: int) -> None:
    """Call part(first row, last row, number) for each part of the rows, each in a thread of its own."""
    parts = parts_of(rows)
    if parts == 1:
        part(0, rows, 0)
        return
    blocks = -(-rows // BLOCK)
    bounds = [min(rows, blocks * number // parts * BLOCK) for number in range(parts + 1)]
    pool = pool_of(parts)
    others = [pool.submit(part, bounds[n], bounds[n + 1], n) for n in range(1, parts)]
    part(bounds[0], bounds[1], 0)
    for other in others:
        other.result()
