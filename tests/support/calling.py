"""Worker processes of `offered` for tests, and a Solver that calls them."""

from __future__ import annotations

import os
import signal
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

from support import launched
from support.waiting import PATIENCE, until
from tasks.admin.cleanup import remove_run
from tasks.app import create_app
from tasks.events import EventDispatcher
from tasks.solver import Solver
from tasks.topology import Topology

OFFERED = Path(__file__).with_name("offered.py")
LEARNER = Path(__file__).with_name("deadly_learner.py")
ROOT = Path(__file__).resolve().parents[2]


def _said_ready(log: Path, process: launched.Process) -> bool:
    """Return whether a worker is ready, or has ended."""
    return b"ready" in log.read_bytes() or process.poll() is not None


class Calling:
    """A run whose workers `start()` starts and `solver` calls."""

    def __init__(
        self, broker_url: str, redis_url: str, run: str, folder: Path, offered: Path = OFFERED, **options: Any
    ) -> None:
        """Make the run; `offered`: the script of its workers; `options`: those of its Solver."""
        self.broker_url, self.redis_url, self.folder = broker_url, redis_url, folder
        self.topology = Topology(run)
        self.app = create_app(self.topology, broker_url, redis_url)
        # A worker may take a minute to start while calls wait for it.
        self.solver = Solver(self.app, self.topology, **{"deadline": PATIENCE, "patience": PATIENCE, **options})
        self._offered = offered
        self.processes: list[launched.Process] = []

    def start(self, number: int = 1, may_end: bool = False, **environment: str) -> list[launched.Process]:
        """Start worker processes; return once each serves or, with `may_end`, was killed by a call."""
        started = []
        here = {"PYTHONUNBUFFERED": "1", "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        for _ in range(number):
            name = f"actor-{len(self.processes)}"
            log = self.folder / f"{name}.log"
            log.write_bytes(b"")
            words = (self.broker_url, self.redis_url, self.topology.run, name)
            process = launched.start(str(self._offered), *words, log=log, given={**os.environ, **here, **environment})
            self.processes.append(process)
            started.append((name, process))
        for name, process in started:
            path = self.folder / f"{name}.log"
            until(partial(_said_ready, path, process))
            # A call may kill its worker before it has printed that it is ready.
            assert process.poll() is None or (may_end and process.returncode == -signal.SIGKILL), path.read_text()
        return [process for _, process in started]

    def start_learner(self, name: str) -> launched.Process:
        """Start a learner (see deadly_learner.py), which prints to NAME.log."""
        words, log = (self.broker_url, self.redis_url, self.topology.run), self.folder / f"{name}.log"
        log.write_bytes(b"")
        here = {**os.environ, "PYTHONPATH": str(ROOT)}
        self.processes.append(launched.start(str(LEARNER), *words, log=log, given=here))
        return self.processes[-1]

    def release(self, key: str) -> None:
        """End the call of `hold` with this key."""
        self.solver._directory._redis.set(f"{self.topology.key_prefix}release:{key}", 1, ex=600)

    def ran(self, key: str) -> int:
        """Return how often a service counted `key`."""
        return int(self.solver._directory._redis.get(f"{self.topology.key_prefix}ran:{key}") or 0)

    def close(self) -> None:
        """Stop all workers and remove all traces of the run."""
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in self.processes:
            try:
                process.wait(timeout=15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.solver.close()
        remove_run(self.app, self.solver._directory._redis, self.topology)


def events_received_while_busy(calling: Calling, number: int) -> tuple[list[int], list[int]]:
    """Fire events while the worker is busy; return those that its handlers of all and of the newest received."""
    events = EventDispatcher(calling.app, calling.topology)
    busy = calling.solver.send("actor.hold", "events")
    until(lambda: calling.ran("events") == 1)
    for fired in range(number):
        events.fire("counted", fired)
        events.fire("stated", fired)
    calling.release("events")
    busy.result()
    until(lambda: all(received[-1:] == [number - 1] for received in calling.solver.call("actor.events_received")))
    received: tuple[list[int], list[int]] = calling.solver.call("actor.events_received")
    return received
