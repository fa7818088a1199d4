"""A league's growth at full match rate: memory of Redis, bytes of its folder, time of a restore.

Players play, take snapshots and are reset as in a run; a keeper saves and trims as a run's does. `series` has the
figures of each tenth of the time, each the largest in it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import redis

from league.models.keeper import Keeper
from league.models.pool import LEAGUE, Pool
from league.models.snapshots import Snapshots
from league.redis.store import Store
from league.state.periods import Periods

BATCH = 64  # matches requested, and reported, at once
PERIOD = 2000  # matches of a player in each learning period
SNAPSHOT_EVERY = 50  # learning periods of a player between its snapshots
MODEL_BYTES = 40_000
MEMORY_BOUND = 50 * MODEL_BYTES  # bytes of frozen models in Redis: reached within the first half, as in a long run
PLAYERS = {"main": "main_agent", "hunter": "main_exploiter", "left": "league_exploiter"}
PARTS = 10
POLL_EVERY = 1.0  # s


def measure(
    client: redis.Redis, folder: Path, seconds: float, every: float = 60.0, history: int = 2_000_000
) -> dict[str, Any]:
    """Return all figures; `every` and `history` are the settings `snapshot_every` and `history` of a league."""
    store, pool = Store(client, "growth:league:", seed=0, view_age=0.1), Pool(client, "growth:", cache_bytes=0)
    store.create()
    for name, kind in PLAYERS.items():
        steps = SNAPSHOT_EVERY * PERIOD
        store.add_player(name, kind, {"checkpoint_min_steps": steps, "checkpoint_max_steps": steps})
    pool.put("main", 0, 0, weights(0))
    pool.freeze("main", 0, LEAGUE)
    store.snapshot("main", 0)

    stopping = threading.Event()
    keeper = Keeper(Store(client, store.prefix), pool, folder, MEMORY_BOUND, every, history)
    thread = threading.Thread(target=keeper.run, args=(stopping,))
    thread.start()
    series, matches, started = [], 0, time.monotonic()
    games = playing(store, pool)
    for part in range(1, PARTS + 1):
        memory, disk, stream, poll_at = 0, 0, 0, 0.0
        while time.monotonic() - started < seconds * part / PARTS:
            matches += next(games)
            if time.monotonic() >= poll_at:  # the stream is trimmed again and again, so its largest length counts
                poll_at = time.monotonic() + POLL_EVERY
                memory = max(memory, client.info("memory")["used_memory"])
                disk, stream = max(disk, size_of(folder)), max(stream, store.stream_length())
        series.append(
            {
                "seconds": round(time.monotonic() - started, 1),
                "matches": matches,
                "redis_mb": round(memory / 1e6, 2),
                "folder_mb": round(disk / 1e6, 2),
                "stream": stream,
                "players": len(store.last_roster),
            }
        )
    stopping.set()
    thread.join()
    live, events = store.load(), store.last_event()
    client.flushall()
    began = time.perf_counter()
    Snapshots(folder, Store(client, store.prefix), pool).restore()
    restoring = time.perf_counter() - began
    restored = Store(client, store.prefix).load()
    return {
        "seconds": seconds,
        "matches_per_s": round(matches / seconds),
        "redis_growth_of_second_half": growth(series, "redis_mb"),
        "folder_growth_of_second_half": growth(series, "folder_mb"),
        "restore_s": round(restoring, 2),
        "restored_equal": live.differences(restored) == [] and events == store.last_event(),
        "series": series,
    }


def growth(series: list[dict[str, Any]], name: str) -> float:
    """Return the largest of the second half over the largest of the first, minus 1."""
    half = len(series) // 2
    return round(max(part[name] for part in series[half:]) / max(part[name] for part in series[:half]) - 1.0, 4)


def playing(store: Store, pool: Pool) -> Iterator[int]:
    """Play, and close learning periods; yield the number of matches that ended since the last time."""
    rng, periods = np.random.default_rng(0), Periods(store)
    version, since = 0, dict.fromkeys(PLAYERS, 0)
    while True:
        homes = [str(name) for name in rng.choice(list(PLAYERS), BATCH)]
        issued = store.request_many(homes, "bench", 60.0)
        store.report_many([(match.id, "wdl"[int(rng.integers(3))]) for match in issued])
        for name in homes:
            since[name] += 1
        for name, count in since.items():
            if count >= PERIOD:
                since[name], version = 0, version + 1
                period = periods.open(name, f"learner-{name}", 60.0)
                pool.put(name, version, period.steps + count, weights(version))
                periods.close(
                    period, period.steps + count, version, keep=lambda model: pool.freeze(*model, kept_by=LEAGUE)
                )
        yield len(issued)


def weights(seed: int) -> bytes:
    """Return bytes that do not compress."""
    return np.random.default_rng(seed).bytes(MODEL_BYTES)


def size_of(folder: Path) -> int:
    """Return the bytes of all files below `folder`, without those that are replaced meanwhile."""
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except OSError:
            continue
    return total
