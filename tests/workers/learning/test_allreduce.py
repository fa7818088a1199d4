"""Tests of ring-allreduce: a rank that dies is noticed, and one that comes back takes over the others' state."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import redis
import support
from support.waiting import until

from workers.learning.allreduce import horovod_ring

SCRIPT = support.FOLDER / "ring_of_processes.py"


class Processes:
    def __init__(self, url: str, prefix: str, backend: str) -> None:
        self.client = redis.Redis.from_url(url)
        self.url, self.prefix, self.backend = url, prefix, backend
        self.started: list[subprocess.Popen[bytes]] = []

    def start(self, learner: int, expected: int = 2) -> subprocess.Popen[bytes]:
        command = [sys.executable, str(SCRIPT), self.url, self.prefix, str(learner), str(expected), self.backend]
        self.started.append(subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"}))
        return self.started[-1]

    def seen(self, learner: int) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.client.lrange(f"{self.prefix}:seen:{learner}", 0, -1)]

    def in_ring(self, learner: int, size: int, times: int = 1) -> dict[str, Any]:
        """Wait until `learner` is in its `times`-th ring of `size`; return what it saw there."""

        def found() -> list[dict[str, Any]]:
            return [line for line in self.seen(learner) if line["size"] == size]

        until(lambda: len(found()) >= times, f"ring {times} of {size} at learner {learner}")
        return found()[times - 1]

    def end(self) -> None:
        self.client.set(f"{self.prefix}:end", "", ex=60)
        for process in self.started:
            process.send_signal(signal.SIGCONT)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@pytest.fixture(params=["torch", "horovod"])
def processes(request: pytest.FixtureRequest, redis_url: str, run_name: str) -> Iterator[Processes]:
    if request.param == "horovod" and not horovod_ring.is_built():
        lacking = pytest.fail if os.environ.get("HOROVOD") == "build" else pytest.skip
        lacking("Horovod is not built; `make horovod`")
    made = Processes(redis_url, run_name, request.param)
    yield made
    made.end()


def test_ranks_continue_without_a_lost_one_which_comes_back_with_their_state(
    processes: Processes,
) -> None:
    ranks = [processes.start(learner, expected=3) for learner in range(3)]
    for learner in range(3):
        assert processes.in_ring(learner, 3) == {"rank": learner, "size": 3, "good": True, "updates": 1}
    ranks[0].kill()
    ranks[0].wait()
    for learner in (1, 2):
        left = processes.in_ring(learner, 2)
        assert left["good"]
        assert left["rank"] == learner - 1
    ranks[1].send_signal(signal.SIGSTOP)
    alone = processes.in_ring(2, 1)
    ranks[1].send_signal(signal.SIGCONT)
    for learner in (1, 2):
        again = processes.in_ring(learner, 2, times=2)
        assert again["good"]
        assert again["updates"] > alone["updates"]
