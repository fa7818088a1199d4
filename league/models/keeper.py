"""The keeper of a league's folder: saves frozen models, spills the least used ones, and brings spilled ones back.

    keeper = Keeper(store, pool, folder, memory_bound=4 << 30, every=60.0)
    keeper.run(stopping)          # until the event is set; or keeper.step() from a loop of one's own

One process of a run is the keeper; it has the folder of snapshots (snapshots.py). It holds no state: the folder shows
which models are saved, and Redis shows which are spilled. To keep Redis small, the keeper saves and trims a stream as
soon as it is long, and removes frozen models that no player needs.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from pathlib import Path

from league.matchmaking.view import ModelRef
from league.models.model import REDIS, ModelInfo
from league.models.pool import LEAGUE, Pool
from league.models.saved_stream import KEPT, SEGMENT
from league.models.snapshots import Snapshots
from league.redis.store import Store
from league.redis.texts import text
from league.state.league_state import LeagueState

MEMORY_BOUND = 4 << 30  # bytes of frozen weights in Redis
EVERY = 60.0  # s between snapshots of the whole league
WAIT = 1.0  # s after which `run` checks, at the latest, whether it should stop
NEEDED_SOON = 600.0  # s for which a frozen model counts as needed: a period's end freezes it before it names it


class Keeper:
    """Keeper of `folder` for one run; `memory_bound` is bytes of frozen weights in Redis, `every` s between snapshots.

    `history` is how many past events the folder keeps (None: all), `segment` how many events Redis holds.
    """

    def __init__(
        self,
        store: Store,
        pool: Pool,
        folder: Path,
        memory_bound: int = MEMORY_BOUND,
        every: float = EVERY,
        history: int | None = KEPT,
        segment: int = SEGMENT,
    ) -> None:
        self.store, self.pool, self.memory_bound, self.every, self.segment = store, pool, memory_bound, every, segment
        self.history, self.snapshots = history, Snapshots(folder, store, pool)
        self.files = self.snapshots.files
        self._last = -float("inf")

    def run(self, stopping: threading.Event) -> None:
        """Work until `stopping` is set, then take a last snapshot."""
        while not stopping.is_set():
            self.step(WAIT)
        self.save()

    def step(self, wait: float = 0.0) -> None:
        """Wait up to `wait` s for a request and serve it; save, prune and spill what is due."""
        if not self.store.exists() and self.snapshots.saved():  # Redis has restarted empty
            self.snapshots.restore()
        self._serve(wait)
        due = time.monotonic() - self._last >= self.every
        # Save after each tenth of a segment: saved only when full, Redis would also hold what arrives meanwhile.
        unsaved = self.store.stream_length() - self.snapshots.stream.events
        if due or unsaved >= self.segment // 10:
            self.save()
        if due:
            self._last = time.monotonic()
            models = self.pool.models()
            self.prune(self.snapshots.stream.read().state, models)
            self.spill(models)

    def save(self) -> None:
        """Save to the folder; close a stream file that is long enough, and trim the stream in Redis behind it."""
        self.snapshots.save()
        self.snapshots.stream.rotate(self.store, self.history, self.segment)

    def _serve(self, wait: float) -> None:
        # A freeze pushes an empty entry; a reader of a spilled model pushes its name every second until it is back.
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
            models = self.pool.models()
            self.save_frozen(models)
            self.spill(models)

    def save_frozen(self, models: Iterable[ModelInfo]) -> int:
        """Save the frozen models that the folder lacks; return the number saved."""
        saved = 0
        for info in models:
            if info.frozen and info.place == REDIS and not self.files.holds(info):
                saved += self.files.write(info)
        return saved

    def prune(self, state: LeagueState, models: Iterable[ModelInfo]) -> list[ModelRef]:
        """Remove models frozen by the league that no player uses, begins from or continues from; return them."""
        needed = {ref for player in state.players.values() for ref in (player.model, player.initial)}
        starts = {progress.start for progress in state.progress.values()}
        pruned = []
        for info in models:
            old = time.time() - info.frozen_at > NEEDED_SOON
            if (
                info.frozen
                and info.kept_by == LEAGUE
                and old
                and info.ref not in needed
                and str(info.ref) not in starts
            ):
                self.pool.remove(info.ref, frozen=True)
                pruned.append(info.ref)
        return pruned

    def spill(self, models: Iterable[ModelInfo] | None = None) -> list[ModelRef]:
        """Spill the least used frozen models until the rest is within the bound; return those spilled."""
        listed = self.pool.models() if models is None else models
        held = {str(info.ref): info for info in listed if info.frozen and info.place == REDIS}
        size = sum(info.size for info in held.values())
        spilled: list[ModelRef] = []
        bound = self._bound()
        if size <= bound:
            return spilled
        for name in self.pool.redis.zrange(f"{self.pool.prefix}used", 0, -1):
            info = held.get(text(name))
            if info is not None and self._to_disk(info):
                spilled.append(info.ref)
                size -= info.size
            if size <= bound:
                break
        return spilled

    def bring_back(self, ref: ModelRef) -> bool:
        """Load a spilled model into Redis; return False if its file is missing or it is back already."""
        path = self.files.path(ref)
        return path.exists() and self.pool.bring_back(ref, path.read_bytes())

    def _bound(self) -> int:
        """Return the bytes of frozen weights that Redis may hold: at most half of Redis's own limit, if it has one."""
        limit = int(self.pool.redis.info("memory").get("maxmemory", 0))
        return min(self.memory_bound, limit // 2) if limit else self.memory_bound

    def _to_disk(self, info: ModelInfo) -> bool:
        return self.files.write(info) and self.pool.spill(info.ref)

    def _pop(self, key: str, wait: float) -> str | None:
        """Return the next entry of a list, after waiting up to `wait` s; None if the list is still empty."""
        found = self.pool.redis.blpop([key], timeout=wait) if wait > 0 else self.pool.redis.lpop(key)
        if found is None:
            return None
        return text(found[1] if wait > 0 else found)
