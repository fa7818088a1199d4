"""The league through real tasks: match requests and results of one and of four league workers, beside plain calls.

`python -m benchmarks.league.tasks BROKER REDIS RUN` is one league worker; it prints "ready" once it serves.
"""

from __future__ import annotations

import os
import secrets
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import redis

from benchmarks.calls.actor import OBSERVATION
from benchmarks.calls.peers import served, started
from benchmarks.league.speed import league_of
from league.models.pool import Pool
from league.redis.store import Store
from tasks.app import create_app
from tasks.solver import Solver
from tasks.topology import Topology
from tasks.worker.server import Serving
from workers.leagues.service import VIEW_AGE, LeagueService

ROUNDS = 3
IN_FLIGHT = 64


def measure(broker_url: str, redis_url: str, players: int, seconds: float) -> dict[str, Any]:
    """Return all figures; each side of each round takes `seconds`."""
    run = f"bench-league-{os.getpid()}"
    topology = Topology(run)
    league_of(redis.Redis.from_url(redis_url), f"{topology.key_prefix}league:", players)
    solver = Solver(create_app(topology, broker_url, redis_url), topology)
    command = [sys.executable, "-m", "benchmarks.league.tasks", broker_url, redis_url, run]
    calls: list[float] = []
    found: dict[str, list[float]] = {}
    with served("warren", broker_url, redis_url, run):
        for workers in (1, 4):
            with ExitStack() as stack:
                for number in range(workers):
                    stack.enter_context(started([*command, str(number)]))
                solver.call("league.report", "unknown", "w", "bench")
                for _ in range(ROUNDS):  # interleaved, so that a busy machine slows all alike
                    if workers == 1:
                        calls.append(one_by_one(lambda: solver.call("actor.infer", OBSERVATION), seconds))
                    for name, rate in league_rates(solver, seconds).items():
                        found.setdefault(f"{name}_{workers}", []).append(rate)
    solver.close()
    median = {name: statistics.median(rates) for name, rates in found.items()}
    call_rate = statistics.median(calls)
    return {
        "calls_per_s": round(call_rate),
        "requests_per_s": round(median["requests_1"]),
        "requests_per_s_4_workers": round(median["requests_4"]),
        "results_per_s": round(median["results_1"]),
        "results_per_s_4_workers": round(median["results_4"]),
        "requests_one_by_one_per_s": round(median["one_by_one_1"]),
        "requests_vs_calls": round(median["requests_1"] / call_rate, 3),
        "requests_one_by_one_vs_calls": round(median["one_by_one_1"] / call_rate, 3),
    }


def one_by_one(step: Callable[[], Any], seconds: float) -> float:
    """Return the steps per second of one caller that waits for each."""
    count, started = 0, time.perf_counter()
    while time.perf_counter() - started < seconds:
        step()
        count += 1
    return count / (time.perf_counter() - started)


def league_rates(solver: Solver, seconds: float) -> dict[str, float]:
    """Return requests and results per second with IN_FLIGHT at a time, and requests one by one."""

    def request() -> Any:
        return solver.call("league.request", "main", "bench", 600.0, secrets.token_hex(8))

    alone = one_by_one(request, seconds)
    number = int(alone * seconds) + 1
    asked = [("main", "bench", 600.0, secrets.token_hex(8)) for _ in range(number)]
    started = time.perf_counter()
    matches = list(solver.map("league.request", asked, in_flight=IN_FLIGHT))
    requesting = time.perf_counter() - started
    results = [(found["match"]["match"], "wdl"[index % 3], "bench") for index, found in enumerate(matches)]
    started = time.perf_counter()
    answers = list(solver.map("league.report", results, in_flight=IN_FLIGHT))
    reporting = time.perf_counter() - started
    wrong = [answer for answer in answers if answer[0] != "counted"]
    assert not wrong, f"{len(wrong)} results were not counted, the first: {wrong[0]}"
    return {"one_by_one": alone, "requests": number / requesting, "results": number / reporting}


def main() -> None:
    """Serve the league of a run."""
    broker_url, redis_url, run, number = sys.argv[1:]
    topology, client = Topology(run), redis.Redis.from_url(redis_url)
    store = Store(client, f"{topology.key_prefix}league:", view_age=VIEW_AGE)
    service = LeagueService(store, Pool(client, topology.key_prefix))
    app = create_app(topology, broker_url, redis_url)
    app.conf.worker_redirect_stdouts = False  # "ready" is for the parent to read
    Serving(app, topology, [service], f"league-{number}", log_level="ERROR").run(
        on_ready=lambda: print("ready", flush=True)
    )


if __name__ == "__main__":
    main()
