"""Rows grouped into kinds of equal ones: in small games the same observations come again and again."""

from __future__ import annotations

import ctypes
from typing import NamedTuple

import torch
from torch import Tensor

from agents.native.library import library
from agents.native.perceptron import at, work_of


class Kinds(NamedTuple):
    """The K kinds of N rows."""

    first: Tensor  # int64 [K]: a row of each kind
    kind: Tensor  # int32 [N]: the kind of each row


def kinds_of(x: Tensor) -> Kinds | None:
    """Return the kinds of the rows of float32 [N, ...] on the CPU.

    None where most rows are of a kind of their own, for other tensors, and where there is no library.
    """
    loaded = library()
    if loaded is None or x.dtype is not torch.float32 or not x.is_cpu or not len(x):
        return None
    x, rows = x.contiguous(), ctypes.c_int64(len(x))
    first, kind = torch.empty(len(x), dtype=torch.int64), torch.empty(len(x), dtype=torch.int32)
    room = work_of(loaded.kinds_size(rows))
    count = loaded.find_kinds(at(x), rows, ctypes.c_int64(x[0].numel()), at(first), at(kind), room)
    return Kinds(first[:count], kind) if count else None
