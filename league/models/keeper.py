"""The keeper of a league's folder: saves models when they are frozen, spills least-used ones, brings them back.

    keeper = Keeper(store, pool, folder, memory_bound=4 << 30, every=60.0)
    keeper.run(stopping)          # until the event is set; or keeper.step() from a loop of one's own

One process of a run does this, beside the folder where snapshots are (snapshots.py). It holds no state either: what
is saved is seen in the folder, and what is spilled in Redis.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path

from league.matchmaking.view import ModelRef
from league.models.pool import REDIS, ModelInfo, Pool
from league.models.snapshots import Snapshots
from league.redis.store import Store
from league.redis.texts import text

MEMORY_BOUND = 4 << 30  # bytes of frozen weights in Redis
EVERY = 60.0  # s between snapshots of the whole league
WAIT = 1.0  # s at most until `run` looks whether it should stop


class Keeper:
    """Keeps `folder` for one run; `memory_bound` is bytes of frozen weights in Redis, `every` s between snapshots."""

    def __init__(
        self, store: Store, pool: Pool, folder: Path, memory_bound: int = MEMORY_BOUND, every: float = EVERY
    ) -> None:
        self.pool, self.memory_bound, self.every = pool, memory_bound, every
        self.snapshots = Snapshots(folder, store, pool)
        self.files = self.snapshots.files
        self._last = -float("inf")

    def run(self, stopping: threading.Event) -> None:
        """Work until `stopping` is set, then take a last snapshot."""
        while not stopping.is_set():
            self.step(WAIT)
        self.snapshots.save()

    def step(self, wait: float = 0.0) -> None:
        """Do what there is to do, waiting up to `wait` s for it."""
        self._serve(wait)
        if time.monotonic() - self._last >= self.every:
            self.snapshots.save()
            self._last = time.monotonic()
            self.spill()

    def _serve(self, wait: float) -> None:
        # A freeze pushes an empty entry, a reader of a spilled model its name.
        wanted = f"{self.pool.prefix}wanted"
        first = self._pop(wanted, wait)
        if first is None:
            return
        names = {first}
        while (more := self.pool.redis.lpop(wanted)) is not None:
            names.add(text(more))
        for name in names - {""}:
            self.bring_back(ModelRef.parse(name))
        if "" in names:
            self.save_frozen()
            self.spill()

    def save_frozen(self) -> int:
        """Write the frozen models that the folder lacks; how many."""
        saved = 0
        for info in self.pool.models():
            if info.frozen and info.place == REDIS and not self.files.holds(info):
                saved += self.files.write(info)
        return saved

    def spill(self) -> list[ModelRef]:
        """Spill the least used frozen models until the rest is within the bound; which."""
        held = {str(info.ref): info for info in self.pool.models() if info.frozen and info.place == REDIS}
        size = sum(info.size for info in held.values())
        spilled: list[ModelRef] = []
        if size <= self.memory_bound:
            return spilled
        for name in self.pool.redis.zrange(f"{self.pool.prefix}used", 0, -1):
            info = held.get(text(name))
            if info is not None and self._to_disk(info):
                spilled.append(info.ref)
                size -= info.size
            if size <= self.memory_bound:
                break
        return spilled

    def bring_back(self, ref: ModelRef) -> bool:
        """Return a spilled model to Redis; False when its file is not here or it is back already."""
        path = self.files.path(ref)
        return path.exists() and self.pool.bring_back(ref, path.read_bytes())

    def _to_disk(self, info: ModelInfo) -> bool:
        return self.files.write(info) and self.pool.spill(info.ref)

    def _pop(self, key: str, wait: float) -> str | None:
        """The next entry of a list; waits up to `wait` s."""
        found = self.pool.redis.blpop([key], timeout=wait) if wait > 0 else self.pool.redis.lpop(key)
        if found is None:
            return None
        return text(found[1] if wait > 0 else found)
