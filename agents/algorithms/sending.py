"""Arrays that are written side by side into memory for a device, by several threads, and copied there.

A GPU copies from pinned memory by itself, while the processor goes on. Parts of large columns are copied as soon as
they are written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from itertools import accumulate

import numpy as np
import torch
from torch import Tensor

from agents.native.perceptron import pool_of

PART = 4 << 20  # bytes that one thread writes at a time
SMALL = 1 << 18  # bytes that are written sooner than another thread begins


def host_empty(shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return an uninitialised tensor [*shape] on the CPU, in pinned memory where `device` is a GPU."""
    return torch.empty(tuple(shape), dtype=dtype, pin_memory=device.type == "cuda")


class Sending:
    """Columns on their way to a device: each the arrays [T, N, ...] of one field, one after the other."""

    def __init__(self, columns: Mapping[str, Sequence[np.ndarray]], device: torch.device) -> None:
        """Begin to write the columns into memory for the device."""
        self._columns: dict[str, Tensor] = {}
        self._parts: list[tuple[Future[None] | None, Tensor, Tensor]] = []  # written by, from, to
        self._copied = device.type != "cpu"
        for name, arrays in columns.items():
            first, ends = arrays[0], list(accumulate(array.shape[0] * array.shape[1] for array in arrays))
            host = host_empty((ends[-1], *first.shape[2:]), torch.from_numpy(np.empty(0, first.dtype)).dtype, device)
            self._columns[name] = there = torch.empty_like(host, device=device) if self._copied else host
            for begin, stop in _parts(arrays):
                here = slice(ends[begin - 1] if begin else 0, ends[stop - 1])
                write = partial(_write, arrays[begin:stop], host[here].numpy())
                self._parts.append((started(write, host[here].nbytes), host[here], there[here]))

    def sent(self) -> dict[str, Tensor]:
        """Return the columns [sum of T * N, ...] on the device, which has them once its current stream gets to them."""
        for writing, host, there in sorted(self._parts, key=lambda one: one[0] is not None):  # first those written
            if writing is not None:
                writing.result()
            if self._copied:
                there.copy_(host, non_blocking=True)
        return self._columns


def started(work: Callable[[], object], size: int) -> Future[None] | None:
    """Let another thread do `work` on `size` bytes; where that does not pay, do it, and return None."""
    threads = torch.get_num_threads()
    if size <= SMALL or threads == 1:
        work()
        return None
    return pool_of(threads).submit(work)  # type: ignore[arg-type]


def _write(arrays: Sequence[np.ndarray], out: np.ndarray) -> None:
    begin = 0
    for array in arrays:
        end = begin + array.shape[0] * array.shape[1]
        np.copyto(out[begin:end].reshape(array.shape), array)  # a view; arrays of games have their steps side by side
        begin = end


def _parts(arrays: Sequence[np.ndarray]) -> list[tuple[int, int]]:
    """Return where to cut a sequence of arrays into parts of about PART bytes: (first, after the last) of each."""
    bounds, size = [0], 0
    for number, array in enumerate(arrays):
        if size >= PART:
            bounds.append(number)
            size = 0
        size += array.nbytes
    return list(zip(bounds, [*bounds[1:], len(arrays)], strict=True))
