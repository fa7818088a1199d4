"""The league's speed without tasks around it, on a real Redis: matches, results, models, memory."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import redis

from benchmarks.league.manager import InProcessManager
from league.models.pool import Pool
from league.redis.store import Store
from league.rules.win_rates import CELL_BYTES
from league.state.commands import TakeSnapshot

PLAYERS = 1000
HUNTERS = 50  # snapshots of exploiters, among PLAYERS
MODEL_BYTES = 6_700_000
BATCH = 16  # messages that a league worker takes at once
ROUNDS = 5  # interleaved, so that a busy machine slows both sides alike


def measure(url: str, players: int = PLAYERS, seconds: float = 2.0) -> dict[str, Any]:
    """Return all figures; each side of each round plays for `seconds`."""
    client = redis.Redis.from_url(url)
    figures: dict[str, Any] = {"players": players}
    store = league_of(client, "bench-league:", players)
    figures |= matches(store, players, seconds)
    figures |= {"round_trips": {n: round_trips(url, n) for n in (10, players)}}
    figures |= adding(store)
    figures |= pool(client)
    figures |= payoff_memory(client, players)
    return figures


def league_of(client: Any, prefix: str, players: int) -> Store:
    """Return a main agent, a main exploiter and their history, with a result for each pair of the main agent."""
    store = Store(client, prefix, seed=0)
    store.create()
    store.add_player("main", "main_agent")
    store.add_player("hunter", "main_exploiter")
    for version in range(players - 2):
        owner = "hunter" if version < HUNTERS else "main"
        # Store.snapshot would also read all players, once per player.
        store.execute(TakeSnapshot(owner, f"{owner}@{version}", ""))
    roster = store.view().roster
    rng = np.random.default_rng(0)
    for player in roster.historical:
        match = store.issue("main", roster.by_slot[int(player)].name, "bench", 60.0).id
        store.report(match, str(rng.choice(list("wdl"))))
    return store


def matches(store: Store, players: int, seconds: float) -> dict[str, Any]:
    """Return requests and results per second of one league worker, and of the manager with Python dicts."""
    manager = InProcessManager()
    manager.add("main")
    manager.add("hunter")
    for version in range(players - 2):
        manager.add(f"{'hunter' if version < HUNTERS else 'main'}@{version}")

    ours: list[tuple[float, float]] = []
    kept: list[tuple[float, float]] = []
    theirs: list[tuple[float, float]] = []
    batches: list[tuple[float, float]] = []
    lagging = Store(store.redis, store.prefix, seed=1, view_age=0.1)
    for _ in range(ROUNDS):
        ours.append(rates(lambda: store.request("main", "bench", 600.0).id, store.report, seconds))
        kept.append(rates(lambda: lagging.request("main", "bench", 600.0).id, lagging.report, seconds))
        batches.append(batched(store, seconds))
        theirs.append(rates(lambda: manager.request("main")[0], manager.report, seconds))
    requests, results = (statistics.median(rate[i] for rate in ours) for i in (0, 1))
    their_requests, their_results = (statistics.median(rate[i] for rate in theirs) for i in (0, 1))
    return {
        "requests_per_s_in_process": round(requests),
        "requests_per_s_view_age_100_ms": round(statistics.median(rate[0] for rate in kept)),
        "results_per_s_in_process": round(results),
        f"requests_per_s_{BATCH}_at_once": round(statistics.median(rate[0] for rate in batches)),
        f"results_per_s_{BATCH}_at_once": round(statistics.median(rate[1] for rate in batches)),
        "manager_requests_per_s": round(their_requests),
        "manager_results_per_s": round(their_results),
        "vs_inprocess_manager": round((1 / their_requests + 1 / their_results) / (1 / requests + 1 / results), 3),
    }


def rates(request: Callable[[], Any], report: Callable[[Any, str], Any], seconds: float) -> tuple[float, float]:
    """Return (requests/s, results/s), each timed alone."""
    issued, started = [], time.perf_counter()
    while time.perf_counter() - started < seconds / 2:
        issued.append(request())
    requesting = time.perf_counter() - started
    started = time.perf_counter()
    for number, match in enumerate(issued):
        report(match, "wdl"[number % 3])
    return len(issued) / requesting, len(issued) / (time.perf_counter() - started)


def batched(store: Store, seconds: float) -> tuple[float, float]:
    """Return (requests/s, results/s) of a worker that takes as many messages at once as a batch holds."""
    one, other = rates(
        lambda: store.request_many(["main"] * BATCH, "bench", 600.0),
        lambda matches, outcome: store.report_many([(match.id, outcome) for match in matches]),
        seconds,
    )
    return one * BATCH, other * BATCH


def round_trips(url: str, players: int) -> dict[str, int]:
    """Return the round trips of one request and of one result, in a league of `players`."""
    client = redis.Redis.from_url(url)
    store = league_of(client, f"bench-trips-{players}:", players)
    counts = []
    for step in (lambda: store.request("main", "bench", 60.0, match="counted"), lambda: store.report("counted", "w")):
        before = client.info("stats")["total_reads_processed"]
        step()
        counts.append(int(client.info("stats")["total_reads_processed"] - before - 1))  # minus the question itself
    return {"request": counts[0], "result": counts[1]}


def adding(store: Store) -> dict[str, Any]:
    """Return the milliseconds for adding a player to a league of this size, and until a worker knows it."""
    times = []
    for number in range(30):
        started = time.perf_counter()
        store.snapshot("main", 10**6 + number)
        times.append(time.perf_counter() - started)
    return {"add_player_ms": round(statistics.median(times) * 1e3, 2)}


def pool(client: Any) -> dict[str, Any]:
    """Return MB/s of models put and got, beside the same bytes with SET and GET."""
    data = np.random.default_rng(0).bytes(MODEL_BYTES)
    models = Pool(client, "bench-pool:", cache_bytes=0)
    seconds: dict[str, list[float]] = {"put": [], "get": [], "set": [], "raw_get": []}

    def timed(name: str, step: Callable[[], Any]) -> None:
        started = time.perf_counter()
        step()
        seconds[name].append(time.perf_counter() - started)

    for version in range(1, 12 * ROUNDS + 1):
        steps: list[tuple[str, Callable[[], Any]]] = [
            # Raw Redis keeps as many models as the pool, so that both also free the oldest.
            ("set", partial(client.set, f"bench-raw:{version % 3}", data)),
            ("put", partial(models.put, "main", version, 0, data)),
            ("raw_get", partial(client.get, f"bench-raw:{version % 3}")),
            ("get", partial(models.get, "main", version)),
        ]
        # The two sides go first in turn: what follows a large answer may find warm or cold memory.
        for first, second in ((0, 1), (2, 3)):
            for step in (first, second) if version % 2 else (second, first):
                timed(*steps[step])
    # The lower quartile, since other load on the machine only adds time.
    speed = {name: MODEL_BYTES / 1e6 / statistics.quantiles(times)[0] for name, times in seconds.items()}
    return {
        "pool_put_mb_per_s": round(speed["put"]),
        "pool_get_mb_per_s": round(speed["get"]),
        "redis_set_mb_per_s": round(speed["set"]),
        "redis_get_mb_per_s": round(speed["raw_get"]),
        "pool_put_vs_redis": round(speed["put"] / speed["set"], 3),
        "pool_get_vs_redis": round(speed["get"] / speed["raw_get"], 3),
    }


def payoff_memory(client: Any, players: int) -> dict[str, Any]:
    """Return MB of a payoff in which all players have met, written cell by cell in the order of joining."""
    prefix, cell = "bench-payoff:", np.array([1.0, 0.0, 2.0]).tobytes()
    before = client.info("memory")["used_memory"]
    pipeline = client.pipeline(transaction=False)
    for newcomer in range(players):
        for other in range(newcomer + 1):
            pipeline.setrange(f"{prefix}{newcomer}", other * CELL_BYTES, cell)
            pipeline.setrange(f"{prefix}{other}", newcomer * CELL_BYTES, cell)
        pipeline.execute()
    held = sum(client.memory_usage(f"{prefix}{slot}", samples=0) for slot in range(players))
    grown = client.info("memory")["used_memory"] - before
    return {
        "payoff_mb": round(held / 1e6, 1),
        "payoff_grown_mb": round(grown / 1e6, 1),
        "payoff_bytes_per_pair": round(held / players**2, 1),
    }
