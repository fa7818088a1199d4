"""64 clients of one policy service, batched and not: the part `batched` of `benchmarks.calls`.

`python -m benchmarks.calls.batching BROKER REDIS RUN THREADS` is a process of THREADS clients, each with a connection
of its own. It prints "ready", then for every line "SERVICE SECONDS" on its input a line with the calls/s it made.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import subprocess
import sys
import threading
import time
from typing import Any

from benchmarks.apparatus.ratios import with_intervals
from benchmarks.calls.actor import OBSERVATION
from benchmarks.calls.peers import served, started
from tasks.app import create_app
from tasks.solver import Solver
from tasks.topology import Topology

CLIENTS, PROCESSES = 64, 4
KINDS = {"batched": "actor.decide_batched", "unbatched": "actor.decide"}
TURNS = 12  # short turns of each kind, a round: other load of the machine falls on both alike


def batched(broker_url: str, redis_url: str, rounds: int, seconds: float, processes: int = PROCESSES) -> dict[str, Any]:
    """Have the same 64 clients (threads of `processes` processes) call both kinds in turns of `seconds` s."""
    run = f"batch-{os.getpid()}"
    rates: dict[str, list[float]] = {kind: [] for kind in KINDS}
    with contextlib.ExitStack() as stack:
        stack.enter_context(served("warren", broker_url, redis_url, run))
        command = [sys.executable, "-m", "benchmarks.calls.batching", broker_url, redis_url, run]
        clients = [
            stack.enter_context(started([*command, str(CLIENTS // processes)], ends_with_input=True))
            for _ in range(processes)
        ]
        for service in KINDS.values():
            turn(clients, service, min(seconds, 0.5))  # warms up
        for _ in range(rounds):
            made: dict[str, list[float]] = {kind: [] for kind in KINDS}
            for _ in range(TURNS):
                for kind, service in KINDS.items():
                    made[kind].append(turn(clients, service, seconds))
            for kind, found in made.items():
                rates[kind].append(statistics.mean(found))
        app = create_app(Topology(run), broker_url, redis_url)
        (status,) = app.control.inspect(timeout=5.0)._request("services").values()
    counts = status["services"][KINDS["batched"]]
    ratios = [one / other for one, other in zip(rates["batched"], rates["unbatched"], strict=True)]
    report = {
        **with_intervals({"batched_vs_unbatched": ratios}),
        "batched_rounds": [round(ratio, 2) for ratio in ratios],
        "batched_per_s": round(statistics.median(rates["batched"])),
        "unbatched_per_s": round(statistics.median(rates["unbatched"])),
        "mean_batch": round(counts["calls"] / counts["batches"], 1),
    }
    print(f"{CLIENTS} clients in {processes} processes: {report}", flush=True)
    return report


def turn(clients: list[subprocess.Popen[str]], service: str, seconds: float) -> float:
    """Return the calls/s of all clients, which begin together."""
    for client in clients:
        assert client.stdin is not None
        client.stdin.write(f"{service} {seconds}\n")
        client.stdin.flush()
    return sum(float(client.stdout.readline()) for client in clients if client.stdout is not None)


class Callers:
    """Threads that call one service, again and again, for a given time."""

    def __init__(self, solver: Solver, threads: int) -> None:
        self._solver, self._counts = solver, [0] * threads
        self._start, self._end = threading.Barrier(threads + 1), threading.Barrier(threads + 1)
        self._service, self._until = "", 0.0
        for index in range(threads):
            threading.Thread(target=self._call, args=(index,), daemon=True).start()

    def rate(self, service: str, seconds: float) -> float:
        """Return the calls/s within `seconds` s."""
        self._service, self._until = service, time.perf_counter() + seconds
        self._start.wait()
        self._end.wait()
        return sum(self._counts) / seconds

    def _call(self, index: int) -> None:
        while True:
            self._start.wait()
            calls = 0
            while True:
                self._solver.call(self._service, OBSERVATION)
                if time.perf_counter() > self._until:
                    break
                calls += 1
            self._counts[index] = calls
            self._end.wait()


def main(broker_url: str, redis_url: str, run: str, threads: int) -> None:
    """Run one process of clients until its input ends."""
    topology = Topology(run)
    callers = Callers(Solver(create_app(topology, broker_url, redis_url), topology), threads)
    print("ready", flush=True)
    for line in sys.stdin:
        service, seconds = line.split()
        print(callers.rate(service, float(seconds)), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:4], int(sys.argv[4]))
