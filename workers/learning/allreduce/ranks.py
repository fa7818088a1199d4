"""The ranks as one learner sees them: its own rank, averages over all ranks, and the state that they share.

ranks = Ranks(session, player, learner_id, expected)
ranks.begin(gradient_bytes)
while data := ...:
    try:
        ranks.enter(...)              # waits until every rank has its share of an update
        algorithm.update(data)        # calls `average` for each gradient
    except RanksChanged:
        ranks.join(...)               # a ring of those alive, with the weights of the one that has trained furthest
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from celery.utils.log import get_logger
from torch import Tensor

from warren.errors import WarrenError
from workers.learning.allreduce import horovod_ring, torch_ring
from workers.learning.allreduce.compression import Compression, Uncompressed
from workers.learning.allreduce.membership import Membership
from workers.learning.allreduce.ring import Alone, RanksChanged, Ring, broadcast_bytes, gather_rows

logger = get_logger(__name__)

FIRST_PATIENCE = 60.0  # s that the first ring waits for all configured learners
HOROVOD_FROM = 4 << 20  # bytes of gradients from which `auto` takes Horovod, which is faster but starts more slowly


class Stopping(WarrenError):
    """Raised when a rank is told to stop while it waits for others; its data goes back to the queue."""


class Ranks:
    """One learner's view of the ranks (see the module), and `agents.algorithms.peers.Peers` for its algorithm.

    `expected`: number of learners that the first ring waits for. `backend`: "torch", "horovod" or "auto".
    `compression`: of gradients, the same for all learners. `settings`: see Membership. To be used by one thread at a
    time.
    """

    def __init__(
        self,
        client: Any,
        prefix: str,
        learner: int,
        expected: int,
        backend: str = "auto",
        server: str = "127.0.0.1",
        compression: Compression | None = None,
        settings: Mapping[str, Any] = {},
    ) -> None:
        self._settings = settings
        self.learner, self._expected, self._wanted = learner, expected, backend
        self.compression = compression or Uncompressed()
        self._connection = (client, f"{prefix}:", server)
        self._membership: Membership | None = None
        self._ring: Ring = Alone()
        self._joined = self._entering = False
        self._stopping = threading.Event()
        self._meeting: Any = None  # meeting place of the newest generation that this rank has formed
        self.waited = 0.0  # s spent waiting for the others' shares

    # The place of this rank.

    @property
    def size(self) -> int:
        """Number of ranks in the ring."""
        return self._ring.size

    @property
    def rank(self) -> int:
        """Index of this rank in the ring."""
        return self._ring.rank

    @property
    def backend(self) -> str:
        """Backend of the ring: "horovod", "torch", or "alone"."""
        return self._ring.name

    @property
    def leads(self) -> bool:
        """True for the lowest rank: it alone publishes, and writes metrics and checkpoints."""
        return self._joined and self.rank == 0

    def begin(self, gradient_bytes: int) -> None:
        """Begin to send heartbeats. Raises redis.RedisError; ConfigurationError if settings differ from others'."""
        client, prefix, server = self._connection
        backend = choose(self._wanted, gradient_bytes)
        apart = backend != "horovod" or horovod_ring.spans_machines()
        self._membership = Membership(client, prefix, self.learner, backend, server, self._settings, apart)
        self._membership.start()

    def stop(self) -> None:
        """Stop waiting for other ranks; an update under way is finished. From any thread."""
        self._stopping.set()

    def leave(self) -> None:
        """Leave the ring and the ranks for good."""
        self._stopping.set()
        self.abandon()
        if self._membership is not None:
            self._membership.leave()

    def abandon(self) -> None:
        """Leave the ring; the others notice, and form the next one with this rank once it calls `join`."""
        self._ring.close()
        if self._meeting is not None:
            self._meeting.close()
            self._meeting = None

    def join(
        self, newness: Callable[[], Sequence[float]], state: Callable[[], bytes], take: Callable[[bytes], None]
    ) -> None:
        """Form the next ring; all other ranks `take` the `state` of the rank with the greatest `newness`.

        Raises Stopping when this rank was told to stop meanwhile.
        """
        assert self._membership is not None
        self._joined, began = False, time.monotonic()
        while True:
            self._ring.close()
            generation = self._membership.next(self._expected, FIRST_PATIENCE, self._meet, self._stopping)
            if generation is None:
                raise Stopping("this learner was told to stop")
            try:
                rank, size = generation.members.index(self._membership.token), len(generation.members)
                self._ring = Alone()
                if size > 1:
                    here = self._membership.here(generation)
                    make = horovod_ring.HorovodRing if generation.backend == "horovod" else torch_ring.TorchRing
                    self._ring = make(rank, size, generation.address, generation.port, here, self._lost)
                rows = self._ring.gather(torch.tensor([*newness()], dtype=torch.float64))
                root = max(range(size), key=lambda one: (*rows[one].tolist(), -one))
                data = broadcast_bytes(self._ring, state() if rank == root else b"", root)
                if rank != root:
                    take(data)
                break
            except RanksChanged as error:
                logger.warning("%s; forming the ring once more", error)
        self._joined = True
        logger.info(
            "rank %d of %d, generation %d, by %s; the weights are those of rank %d; took %.1f s",
            rank, size, generation.number, self._ring.name, root, time.monotonic() - began,
        )  # fmt: skip

    def share(self, state: Callable[[], bytes], take: Callable[[bytes], None]) -> None:
        """Have all other ranks `take` the `state` of the leading one; called by all between two updates.

        Raises RanksChanged.
        """
        data = broadcast_bytes(self._ring, state() if self.rank == 0 else b"", 0)
        if self.rank:
            take(data)

    def enter(self, figures: Sequence[float], rows: np.ndarray) -> tuple[list[list[float]], list[np.ndarray]]:
        """Wait until all ranks have a share of the next update; return the `figures` and float64 `rows` [K, C] of each.

        Raises RanksChanged, also if another rank wants to join, and Stopping.
        """
        assert self._membership is not None
        if not self._joined:
            raise RanksChanged("this learner is in no ring yet")
        self._entering, began = True, time.monotonic()
        try:
            own = torch.tensor([float(self._membership.joining()), *figures], dtype=torch.float64)
            found = [one.tolist() for one in self._ring.gather(own)]
        except RanksChanged:
            if self._stopping.is_set():
                raise Stopping("this learner was told to stop") from None
            raise
        finally:
            self._entering = False
            self.waited += time.monotonic() - began
        if any(one[0] for one in found):
            raise RanksChanged("another learner joins")
        episodes = gather_rows(self._ring, torch.from_numpy(np.asarray(rows, dtype=np.float64)))
        return [one[1:] for one in found], [one.numpy() for one in episodes]

    # The methods of the algorithm's Peers.

    def total(self, numbers: Tensor) -> Tensor:
        """See Peers."""
        if self.size == 1:
            return numbers
        there = numbers.detach().double().cpu().contiguous().clone()
        self._ring.sum(there)
        return there.to(numbers)

    def least(self, number: int) -> int:
        """See Peers."""
        found = self._ring.gather(torch.tensor([number], dtype=torch.int64))
        return int(min(found))

    def average(self, gradient: Tensor, loss: Tensor, weight: int) -> Tensor:
        """See Peers."""
        if self.size == 1:
            return loss
        return self.compression.average(self._ring, gradient, loss, weight)

    def mean(self, metrics: Mapping[str, float]) -> dict[str, float]:
        """Return the mean of each figure over all ranks."""
        values = torch.tensor(list(metrics.values()), dtype=torch.float64)
        return dict(zip(metrics, (self.total(values) / self.size).tolist(), strict=True))

    def _meet(self, backend: str, size: int, address: str) -> int:
        if self._meeting is not None:
            self._meeting.close()
        kind = horovod_ring.Rendezvous if backend == "horovod" else torch_ring.Rendezvous
        self._meeting = kind(size, address)
        return int(self._meeting.port)

    def _lost(self) -> str:
        assert self._membership is not None
        if self._entering and self._stopping.is_set():
            return "this learner was told to stop"
        return self._membership.lost()


def choose(wanted: str, gradient_bytes: int) -> str:
    """Return the backend that `wanted` means on this machine; "auto" depends on the bytes of the gradients."""
    if wanted != "auto":
        return wanted
    return "horovod" if horovod_ring.is_built() and gradient_bytes >= HOROVOD_FROM else "torch"
