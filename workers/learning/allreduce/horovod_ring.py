"""Allreduce by Horovod: its own ring over gloo, with a thread that runs collectives beside the process's own threads.

Horovod is initialised anew for each generation, with its own rendezvous server. There every rank has its own host name,
because Horovod ends a job whose only host has lost a rank.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import threading
import time
from typing import Any

from torch import Tensor

from workers.learning.allreduce.build_horovod import MENDED
from workers.learning.allreduce.ring import Lost, RanksChanged

SILENT = 3  # s without a sign from a rank's thread after which the others count it as lost
LOOK_EVERY = 0.25  # s between checks for lost ranks while waiting
SPIN = 0.0002  # s between checks of whether a collective is done


def is_built() -> bool:
    """Return whether Horovod is installed (`make horovod`)."""
    return importlib.util.find_spec("horovod") is not None


def spans_machines() -> bool:
    """Return whether the installed Horovod works between machines, as those built by `make horovod` do."""
    return is_built() and importlib.metadata.version("horovod").endswith(MENDED)


class Rendezvous:
    """The meeting place of a generation's ranks, in the process that forms it, listening at `address` only.

    Horovod's RendezvousServer would listen on all interfaces.
    """

    def __init__(self, size: int, address: str = "127.0.0.1") -> None:
        from horovod.runner.common.util.hosts import get_host_assignments, parse_hosts
        from horovod.runner.http.http_server import RendezvousHandler, RendezvousHTTPServer

        self._server = RendezvousHTTPServer((address, 0), RendezvousHandler, 0)
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, name="rendezvous", daemon=True)
        self._thread.start()
        self._server.init(get_host_assignments(parse_hosts(",".join(f"{_host(rank)}:1" for rank in range(size))), size))

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class HorovodRing:
    """A Ring by Horovod. `lost` is called while this rank waits; `here` is this machine's address for the others."""

    name = "horovod"

    def __init__(self, rank: int, size: int, address: str, port: int, here: str, lost: Lost) -> None:
        self.rank, self.size, self._lost = rank, size, lost
        os.environ.update(
            HOROVOD_CONTROLLER="gloo",
            HOROVOD_CPU_OPERATIONS="gloo",
            HOROVOD_GLOO_RENDEZVOUS_ADDR=address,
            HOROVOD_GLOO_RENDEZVOUS_PORT=str(port),
            HOROVOD_GLOO_IFACE=_interface_of(here),
            HOROVOD_GLOO_TIMEOUT_SECONDS=str(SILENT),
            HOROVOD_HOSTNAME=_host(rank),
            HOROVOD_RANK=str(rank),
            HOROVOD_SIZE=str(size),
            HOROVOD_LOCAL_RANK="0",
            HOROVOD_LOCAL_SIZE="1",
            HOROVOD_CROSS_RANK=str(rank),
            HOROVOD_CROSS_SIZE=str(size),
            HOROVOD_STALL_CHECK_DISABLE="1",  # ranks wait for data, for as long as it takes
            HOROVOD_LOG_LEVEL=os.environ.get("HOROVOD_LOG_LEVEL", "fatal"),  # errors are raised as well
        )
        import horovod.torch as horovod

        self._horovod: Any = horovod
        self._sum = horovod.Sum
        try:
            horovod.init()
        except Exception as error:
            raise RanksChanged(f"rank {rank} of {size} was not connected to the others: {error}") from None

    def sum(self, tensor: Tensor) -> None:
        """See Ring."""
        self._wait("allreduce_async_", tensor, op=self._sum)

    def gather(self, tensor: Tensor) -> list[Tensor]:
        """See Ring."""
        return list(self._wait("allgather_async", tensor.unsqueeze(0)).unbind())

    def broadcast(self, tensor: Tensor, root: int) -> None:
        """See Ring."""
        self._wait("broadcast_async_", tensor, root_rank=root)

    def close(self) -> None:
        """See Ring."""
        if self._horovod is not None:
            self._horovod.shutdown()
            self._horovod = None

    def _wait(self, collective: str, tensor: Tensor, **arguments: Any) -> Any:
        if self._horovod is None:
            raise RanksChanged("this rank has left the ring")
        # Collectives of one kind share a name: then Horovod's ranks agree by a cached bit, not by a list of names.
        name = f"{collective}.{tensor.dtype}.{tuple(tensor.shape)}"
        try:
            handle = getattr(self._horovod, collective)(tensor, name=name, **arguments)
            look_at = time.monotonic() + LOOK_EVERY
            while not self._horovod.poll(handle):
                if time.monotonic() >= look_at:
                    look_at = time.monotonic() + LOOK_EVERY
                    if why := self._lost():
                        raise RanksChanged(why)
                time.sleep(SPIN)
            return self._horovod.synchronize(handle)
        except (RuntimeError, ValueError) as error:
            raise RanksChanged(f"a rank has left the ring: {str(error).splitlines()[0][:200]}") from None


def _host(rank: int) -> str:
    return f"rank{rank}"


def _interface_of(address: str) -> str:
    """Return the network interface with this address. Raises RanksChanged without one."""
    import psutil

    for name, addresses in psutil.net_if_addrs().items():
        if any(one.address == address for one in addresses):
            return str(name)
    raise RanksChanged(f"no network interface has the address {address}")
