"""Starts ranks (benchmarks.allreduce.ranks) as processes, reads what they print, kills them and starts them again."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

Line = dict[str, Any]


class RankProcesses:
    """Ranks 0 .. of - 1 of one job. A context manager, which kills those that are left at its end."""

    def __init__(self, of: int, **job: Any) -> None:
        self._job = {"of": of, **job}
        self._lines: list[Line] = []
        self._read = 0  # number of lines that `until` has read
        self._news = threading.Condition()
        self._processes: dict[int, subprocess.Popen[str]] = {}
        self._threads: list[threading.Thread] = []
        for learner in range(of):
            self.start(learner)

    def start(self, learner: int) -> None:
        """Start a rank, for the first time or after it was killed."""
        command = [sys.executable, "-m", "benchmarks.allreduce.ranks", json.dumps({**self._job, "learner": learner})]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self._processes[learner] = process
        self._threads.append(threading.Thread(target=self._listen, args=(process,), daemon=True))
        self._threads[-1].start()

    def kill(self, learner: int) -> float:
        """Kill a rank as the kernel would; return the time.monotonic() of that. Lines until then count as read."""
        with self._news:
            self._read = len(self._lines)
            killed = time.monotonic()
            self._processes[learner].kill()
        self._processes[learner].wait()
        return killed

    def until(self, good: Callable[[Line], bool], limit: float) -> Line:
        """Return the next line that is `good`. Raises TimeoutError, and RuntimeError if no rank is left."""
        deadline, ended = time.monotonic() + limit, False
        with self._news:
            while True:
                while self._read < len(self._lines):
                    self._read += 1
                    if good(self._lines[self._read - 1]):
                        return self._lines[self._read - 1]
                if ended and not any(thread.is_alive() for thread in self._threads):  # all lines are read
                    raise RuntimeError("the ranks have ended; see what they wrote above")
                ended = all(process.poll() is not None for process in self._processes.values())
                if time.monotonic() > deadline:
                    raise TimeoutError(f"ranks did not come so far within {limit:g} s")
                self._news.wait(1.0)

    def finish(self, limit: float) -> list[Line]:
        """Wait until all have ended; return all lines. Raises TimeoutError, and RuntimeError if a rank failed."""
        deadline = time.monotonic() + limit
        for learner, process in self._processes.items():
            try:
                status = process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                raise TimeoutError(f"rank {learner} has not ended within {limit:g} s") from None
            if status:
                raise RuntimeError(f"rank {learner} ended with status {status}; see what it wrote above")
        for thread in self._threads:
            thread.join(10)
        return self._lines

    def _listen(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for text in process.stdout:
            if text.startswith("{"):
                with self._news:
                    self._lines.append(json.loads(text))
                    self._news.notify_all()

    def __enter__(self) -> RankProcesses:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait()


def rank_lines(of: int, limit: float, **job: Any) -> list[Line]:
    """Run the job with `of` ranks to its end; return their lines."""
    with RankProcesses(of, **job) as ranks:
        return ranks.finish(limit)
