"""20,000 one-way calls that do nothing, drained by two worker processes: the part `noops` of `benchmarks.calls`.

The workers are suspended while all calls are sent, and then resumed: only the drain is timed, until all calls have run.
Dramatiq does the same in its own environment (DIR/queue/bin/python of `--peers DIR`), in turns, round by round.
Each worker thread counts its calls in 8 bytes of a file, so that counting costs both sides the same.

`python -m benchmarks.calls.noops BROKER REDIS RUN FOLDER` is one of Warren's worker processes.
"""

from __future__ import annotations

import contextlib
import itertools
import mmap
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.apparatus.ratios import with_intervals
from benchmarks.calls.peers import started
from tasks.app import create_app
from tasks.service import Worker, service
from tasks.solver import Solver
from tasks.topology import Topology
from tasks.worker.server import Serving

CALLS, PROCESSES, WARM_UP = 20_000, 2, 200
WITHIN = 120.0  # s for all calls to have run; a bound against hanging


class Noops(Worker):
    """A service that does nothing but count."""

    role = "noops"

    def __init__(self, folder: Path) -> None:
        super().__init__()
        with (folder / str(os.getpid())).open("w+b") as file:
            file.write(bytes(8))
            file.flush()
            self._view, self._count = mmap.mmap(file.fileno(), 8), itertools.count(1)

    @service(response=False, bound=10 * CALLS)
    def noop(self, number: int) -> None:
        self._view[:8] = next(self._count).to_bytes(8, "little")


class WarrenNoops:
    """Warren's side: a solver, and its two serving processes."""

    def __init__(self, solver: Solver, workers: list[subprocess.Popen[str]]) -> None:
        self._solver, self._workers = solver, workers

    def send(self, number: int) -> None:
        """Send `number` calls; return when the broker has confirmed them."""
        for index in range(number):
            self._solver.send("noops.noop", index)
        if unsent := self._solver.flush():
            raise RuntimeError(f"{unsent} calls were not confirmed")

    def stop(self) -> None:
        """Suspend the workers."""
        for worker in self._workers:
            worker.send_signal(signal.SIGSTOP)

    def go(self) -> None:
        """Resume the workers."""
        for worker in self._workers:
            worker.send_signal(signal.SIGCONT)


class DramatiqNoops:
    """Dramatiq's side, in a process with the Python of its own environment."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def _ask(self, line: str) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        if not self._process.stdout.readline():
            raise RuntimeError(f"Dramatiq's process ended with status {self._process.wait()}")

    def send(self, number: int) -> None:
        """Send `number` calls."""
        self._ask(f"send {number}")

    def stop(self) -> None:
        """Suspend the workers."""
        self._ask("stop")

    def go(self) -> None:
        """Resume the workers."""
        self._ask("go")


def noops(broker_url: str, redis_url: str, python: str | None, rounds: int, calls: int = CALLS) -> dict[str, Any]:
    """Return seconds to drain `calls` calls, Warren's and Dramatiq's, and the ratio; `python`: Dramatiq's."""
    drained: dict[str, list[float]] = {"warren": []}
    for number in range(rounds):
        with tempfile.TemporaryDirectory() as folder, _warren(broker_url, redis_url, number, Path(folder)) as side:
            drained["warren"].append(drain(side, Path(folder), calls))
        if python is not None:
            with tempfile.TemporaryDirectory() as folder, _dramatiq(python, broker_url, Path(folder)) as other:
                drained.setdefault("dramatiq", []).append(drain(other, Path(folder), calls))
        print(f"noops round {number + 1}: { ({name: round(s[-1], 3) for name, s in drained.items()}) } s", flush=True)
    report: dict[str, Any] = {
        f"drain_{name}_s": round(statistics.median(seconds), 3) for name, seconds in drained.items()
    }
    if "dramatiq" in drained:
        ratios = [theirs / ours for ours, theirs in zip(drained["warren"], drained["dramatiq"], strict=True)]
        report |= with_intervals({"drain_vs_dramatiq": ratios})
        report["drain_rounds"] = [round(ratio, 2) for ratio in ratios]
    return report


def drain(side: WarrenNoops | DramatiqNoops, folder: Path, calls: int) -> float:
    """Return the seconds from the moment when the workers are resumed until they have run all calls."""
    side.send(WARM_UP)
    _until(folder, WARM_UP)
    side.stop()
    try:
        side.send(calls)
        begun = time.perf_counter()
    finally:
        side.go()
    _until(folder, WARM_UP + calls)
    return time.perf_counter() - begun


def _until(folder: Path, number: int) -> None:
    limit = time.monotonic() + WITHIN
    while sum(int.from_bytes(path.read_bytes()[:8], "little") for path in folder.iterdir()) < number:
        if time.monotonic() > limit:
            raise RuntimeError(f"{number} calls had not run within {WITHIN:g} s")
        time.sleep(0.002)


@contextlib.contextmanager
def _warren(broker_url: str, redis_url: str, number: int, folder: Path) -> Iterator[WarrenNoops]:
    run = f"noops-{os.getpid()}-{number}"
    command = [sys.executable, "-m", "benchmarks.calls.noops", broker_url, redis_url, run, str(folder)]
    with contextlib.ExitStack() as stack:
        workers = [stack.enter_context(started(command)) for _ in range(PROCESSES)]
        topology = Topology(run)
        solver = Solver(create_app(topology, broker_url, redis_url), topology)
        stack.callback(solver.close)
        yield WarrenNoops(solver, workers)


@contextlib.contextmanager
def _dramatiq(python: str, broker_url: str, folder: Path) -> Iterator[DramatiqNoops]:
    script = str(Path(__file__).parents[1] / "foreign" / "dramatiq_peer.py")
    with started([python, script, broker_url, str(folder)], ends_with_input=True) as process:
        yield DramatiqNoops(process)


def serve(broker_url: str, redis_url: str, run: str, folder: str) -> None:
    """Run one of Warren's worker processes until it is told to stop."""
    topology = Topology(run)
    app = create_app(topology, broker_url, redis_url)
    serving = Serving(app, topology, [Noops(Path(folder))], f"noops-{os.getpid()}", log_level="ERROR")
    serving.run(on_ready=lambda: print("ready", flush=True))


if __name__ == "__main__":
    serve(*sys.argv[1:5])
