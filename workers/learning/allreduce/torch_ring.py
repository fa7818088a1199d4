"""Allreduce by torch's gloo, over TCP, with a process group for each generation beside torch's default one."""

from __future__ import annotations

import ctypes
import socket
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as distributed
from torch import Tensor

from workers.learning.allreduce.compat import gloo_group
from workers.learning.allreduce.ring import LATE, Lost, RanksChanged

LOOK_EVERY = timedelta(seconds=0.25)  # between checks for lost ranks while waiting
_abandoned: list[Any] = []

dist: Any = distributed  # torch's stubs lack its classes


class Rendezvous:
    """The meeting place of a generation's ranks, in the process that forms it, listening at `address` only.

    A TCPStore that made its own socket would listen on all interfaces.
    """

    def __init__(self, size: int, address: str = "127.0.0.1") -> None:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        place = socket.create_server((address, 0), family=family)
        self.port = int(place.getsockname()[1])
        self._store = dist.TCPStore(
            address, self.port, is_master=True, wait_for_workers=False, master_listen_fd=place.detach()
        )

    def close(self) -> None:
        """Drop this reference to the store, which ends with the last reference."""
        del self._store


class TorchRing:
    """A Ring by gloo. `lost` is called while this rank waits; `here` is this machine's address for the others."""

    name = "torch"

    def __init__(self, rank: int, size: int, address: str, port: int, here: str, lost: Lost) -> None:
        self.rank, self.size, self._lost = rank, size, lost
        try:
            store = dist.TCPStore(
                address, port, is_master=False, wait_for_workers=False, timeout=timedelta(seconds=LATE)
            )
            self._group: Any = gloo_group(store, rank, size, here, timedelta(seconds=LATE))
        except (RuntimeError, dist.DistError) as error:
            raise RanksChanged(f"rank {rank} of {size} was not connected to the others: {_line(error)}") from None

    def sum(self, tensor: Tensor) -> None:
        """See Ring."""
        self._wait(self._group.allreduce, [tensor])

    def gather(self, tensor: Tensor) -> list[Tensor]:
        """See Ring."""
        found = [torch.empty_like(tensor) for _ in range(self.size)]
        self._wait(self._group.allgather, [found], [tensor])
        return found

    def broadcast(self, tensor: Tensor, root: int) -> None:
        """See Ring."""
        self._wait(self._group.broadcast, tensor, root)

    def close(self) -> None:
        """See Ring."""
        self._group = None

    def _wait(self, collective: Any, *arguments: Any) -> None:
        if self._group is None:
            raise RanksChanged("this rank has left the ring")
        try:
            work = collective(*arguments)
            while not _done(work):
                if why := self._lost():
                    # gloo does not give up a collective, and deleting the group would wait for it.
                    ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._group))
                    _abandoned.append(self._group)
                    raise RanksChanged(why)
        except RuntimeError as error:
            self.close()
            raise RanksChanged(f"a rank has left the ring: {_line(error)}") from None


def _done(work: Any) -> bool:
    """Wait for LOOK_EVERY at most; return whether the collective is done. Raises RuntimeError when it failed."""
    try:
        work.wait(LOOK_EVERY)
        return True
    except RuntimeError:
        if work.is_completed():  # it failed, rather than took longer than LOOK_EVERY
            raise
        return False


def _line(error: BaseException) -> str:
    return str(error).splitlines()[0][:200]
