"""The interface of an allreduce backend: three collectives among the ranks of one generation."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from torch import Tensor

from warren.errors import WarrenError

LATE = 60.0  # s that ranks may be apart within an update; between updates they wait for data as long as it takes


class RanksChanged(WarrenError):
    """Raised in a collective when a rank was lost or another one wants to join: the ranks then form a new ring."""


class Ring(Protocol):
    """The ranks 0 .. size - 1 of one generation. All call the same collectives in the same order, and wait in them.

    Tensors are contiguous, of float16, float32, float64, int32 or int64 (for torch's ring also bfloat16) and have the
    same shape on all ranks; results have the same bits on each. A collective raises RanksChanged when a rank is lost;
    then only `close` may follow.
    """

    name: str
    rank: int
    size: int

    def sum(self, tensor: Tensor) -> None:
        """Replace `tensor` by the sum over all ranks."""
        ...

    def gather(self, tensor: Tensor) -> list[Tensor]:
        """Return the tensor of each rank, in their order."""
        ...

    def broadcast(self, tensor: Tensor, root: int) -> None:
        """Replace `tensor` by that of rank `root`."""
        ...

    def close(self) -> None:
        """Leave the ring; ranks that wait for this one notice. Idempotent."""
        ...


class Alone:
    """The ring of one rank."""

    name, rank, size = "alone", 0, 1

    def sum(self, tensor: Tensor) -> None:
        """See Ring."""

    def gather(self, tensor: Tensor) -> list[Tensor]:
        """See Ring."""
        return [tensor]

    def broadcast(self, tensor: Tensor, root: int) -> None:
        """See Ring."""

    def close(self) -> None:
        """See Ring."""


Lost = Callable[[], str]  # why the ring cannot go on, as text; "" while all ranks are there


def broadcast_bytes(ring: Ring, data: bytes, root: int) -> bytes:
    """Return the `data` of rank `root`, on each rank."""
    length = torch.tensor([len(data)], dtype=torch.int64)
    ring.broadcast(length, root)
    size = int(length)
    padded = bytearray(-(-size // 8) * 8)
    if ring.rank == root:
        padded[:size] = data
    words = torch.frombuffer(padded, dtype=torch.int64) if padded else torch.zeros(0, dtype=torch.int64)
    if len(words):
        ring.broadcast(words, root)
    return bytes(padded[:size])


def gather_rows(ring: Ring, rows: Tensor) -> list[Tensor]:
    """Return the float64 `rows` [K, C] of each rank; K may differ among ranks, C may not."""
    counts = [int(count) for count in ring.gather(torch.tensor([len(rows)], dtype=torch.int64))]
    most = max(counts)
    if not most:
        return [rows] * ring.size
    padded = torch.zeros(most, *rows.shape[1:], dtype=torch.float64)
    padded[: len(rows)] = rows
    return [one[:count] for one, count in zip(ring.gather(padded), counts, strict=True)]


def address_towards(others: Sequence[str]) -> str:
    """Return the address by which `others` (addresses or names) can reach this machine; loopback if there are none."""
    for other in others:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            try:
                probe.connect((other, 9))  # sends nothing: the kernel only chooses the route
                return str(probe.getsockname()[0])
            except OSError:
                continue
    return "127.0.0.1"
