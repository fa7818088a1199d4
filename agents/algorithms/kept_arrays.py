"""Large arrays that batches are written into, kept from one update to the next.

The system gives out a fresh array of many MiB page by page, and zeroes each page when it is first written to. For a
batch of images that takes as long as the copying. Kept memory has its pages already, and memory for a GPU is pinned, so
that the device itself copies it.

Users do not release an array. It is written to again only when nothing holds a reference to it; a tensor made of it, a
view, and a graph that gradients flow through each hold one. If an update still reads the last batch, or an algorithm
keeps it, the next batch is written to another array. So two arrays are used in turn.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from math import prod
from threading import Lock

import numpy as np
import torch
from torch import Tensor

SMALLEST = 32 << 20  # bytes; of smaller arrays glibc keeps the pages itself (its largest threshold of mmap)
SMALLEST_PINNED = 1 << 20  # bytes of the smallest array that is kept for copies to a GPU
MOST = 8  # buffers that are kept
_alone = [np.empty(0)]
UNHELD = sys.getrefcount(_alone[0])  # references to an array that a list alone holds


class KeptArrays:
    """Buffers for all threads of a process: `most` of them, and as many that are pinned."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._lock = Lock()
        self._buffers: dict[bool, list[np.ndarray]] = {False: [], True: []}  # uint8; by whether they are pinned

    def empty(self, shape: tuple[int, ...], dtype: np.dtype, pinned: bool = False) -> np.ndarray:
        """Return an uninitialised array that nothing else holds; `pinned`: in pinned memory, for copies to a GPU."""
        size = prod(shape) * dtype.itemsize
        with self._lock:
            buffers = self._buffers[pinned]  # the one that was taken last is at the end
            index = self._free(buffers, size)
            if index is not None:
                buffer = buffers.pop(index)
            elif pinned:
                buffer = torch.empty(size, dtype=torch.uint8, pin_memory=True).numpy()
            else:
                buffer = np.empty(size, np.uint8)
            buffers.append(buffer)
            del buffers[: -self._most]  # an array that uses a dropped buffer keeps it alive
            array: np.ndarray = buffer[:size].view(dtype).reshape(shape)
            return array

    def _free(self, buffers: list[np.ndarray], size: int) -> int | None:
        """Return the index of the smallest free buffer of at least `size` and less than 2 * `size` bytes, or None."""
        free = [
            index
            for index in range(len(buffers))
            if size <= len(buffers[index]) < 2 * size and sys.getrefcount(buffers[index]) == UNHELD
        ]
        return min(free, key=lambda index: len(buffers[index]), default=None)


KEPT = KeptArrays()


def joined(parts: Sequence[np.ndarray], axis: int, pinned: bool = False) -> np.ndarray:
    """Concatenate arrays along `axis`, large ones into kept memory."""
    first = parts[0]
    smallest = SMALLEST_PINNED if pinned else SMALLEST
    if sum(part.nbytes for part in parts) < smallest or any(part.dtype != first.dtype for part in parts):
        return np.concatenate(parts, axis=axis)
    length = sum(part.shape[axis] for part in parts)
    out = KEPT.empty((*first.shape[:axis], length, *first.shape[axis + 1 :]), first.dtype, pinned)
    return np.concatenate(parts, axis=axis, out=out)


def selected(tensor: Tensor, axis: int, order: Tensor) -> Tensor:
    """Return tensor.index_select(axis, order); a large tensor on the CPU is written to kept memory."""
    if tensor.nbytes < SMALLEST or tensor.device.type != "cpu" or tensor.requires_grad:
        return tensor.index_select(axis, order)
    shape = (*tensor.shape[:axis], len(order), *tensor.shape[axis + 1 :])
    return torch.index_select(tensor, axis, order, out=torch.from_numpy(KEPT.empty(shape, tensor.numpy().dtype)))
