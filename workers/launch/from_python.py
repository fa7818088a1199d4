"""`warren.train`: a training run or a league from Python, with callbacks; the command itself runs as a child process.

    result = warren.train(env={"id": "CartPole-v1"}, actors=4, on_update=lambda point: print(point["mean_return"]))
    result.trained.act(observation)

The child is `python -m workers.train`, so settings, checks, servers and the clean end are the command's own; it works
in a notebook, whose process has threads and keeps its signals. The child ends with this process, however this one ends.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from warren.errors import ConfigurationError, WarrenError
from warren.files import read_json
from warren.separate_process import python
from workers.launch.following_points import Point, Points
from workers.launch.settings_as_words import words
from workers.learning.metrics import EVALUATIONS, METRICS, read_metrics
from workers.servers.process import Child

if TYPE_CHECKING:
    from workers.runtime.trained import Trained

Callback = Callable[[Point], object]

POLL = 0.1  # s between looks at the child's output and at the files of the run
GRACE = 900.0  # s that the launcher may take to end in order; it bounds its own processes
STOPPED = 130  # the launcher's exit status after a stop
REFUSED = 2  # after settings that are wrong
ERROR = "error: "
FOLDER = "run folder "


@dataclass(frozen=True)
class TrainingResult:
    """A run that has ended. `state`: solved, finished or stopped; `outcome`: what outcome.json holds."""

    folder: Path
    state: str
    outcome: Mapping[str, Any]

    @cached_property
    def trained(self) -> Trained:
        """Return the trained policy, with its newest weights; for a league, that of its player `main`. See `load`."""
        return self.load()

    def load(self, player: str = "main", *, best: bool = False) -> Trained:
        """Load a player of a league, or the weights of the best evaluation. Raises as workers.runtime.trained.load."""
        from workers.runtime.trained import load  # and with it torch, which nothing else here needs

        return load(self.folder, player, best=best)

    @property
    def metrics(self) -> list[Point]:
        """Points of metrics.jsonl, one per update; empty for a league, whose players have their own files."""
        return [*read_metrics(self.folder, METRICS)]

    @property
    def evaluations(self) -> list[Point]:
        """Points of evaluation.jsonl, one per evaluation."""
        return [*read_metrics(self.folder, EVALUATIONS)]


def train(
    *overrides: str,
    on_update: Callback | None = None,
    on_evaluation: Callback | None = None,
    on_end: Callable[[TrainingResult], object] | None = None,
    quiet: bool = False,
    **settings: Any,
) -> TrainingResult:
    """Run `python -m workers.train` to its end, and return its result.

    `overrides` are words of that command line ("experiment=kuhn"); `settings` are the same by name, tables as dicts
    (env={"id": "CartPole-v1"}). `on_update` gets each point of metrics.jsonl (for a league's players with "player"),
    `on_evaluation` each point of evaluation.jsonl; a callback that returns False ends the run in order. `on_end` gets
    the result. `quiet`: print nothing that the command prints.

    Ctrl-C ends the run in order and is raised again as KeyboardInterrupt; a second one kills the run. An exception in a
    callback ends the run in order, too, and is raised again. Raises ConfigurationError with all settings that are
    wrong, WarrenError for a run that failed.
    """
    given = {"on_update": on_update, "on_evaluation": on_evaluation, "on_end": on_end}
    if wrong := [name for name, one in given.items() if one is not None and not callable(one)]:
        raise ConfigurationError([f"{name}: {given[name]!r} cannot be called; give a function" for name in wrong])
    callbacks = {METRICS: on_update, EVALUATIONS: on_evaluation}
    with tempfile.TemporaryDirectory(prefix="warren-train-") as folder:
        run = _Run(words(overrides, settings), Path(folder) / "launcher.log", quiet)
        try:
            result = run.follow(callbacks)
        finally:
            run.close()
    if on_end is not None and result is not None:
        on_end(result)
    if run.failure is not None:
        raise run.failure
    assert result is not None
    return result


class _Run:
    """The child process, its output, and the points that the run writes."""

    def __init__(self, line: list[str], log: Path, quiet: bool) -> None:
        self.failure: BaseException | None = None
        self._quiet = quiet
        self._printed: list[str] = []
        self._child = Child("the run", python("-m", "workers.train", *line), log, {**os.environ}, GRACE)
        self._output, self._half = log.open("rb"), b""
        self._points: Points | None = None
        self._since = time.time()
        self._stopping = False

    def follow(self, callbacks: Mapping[str, Callback | None]) -> TrainingResult | None:
        """Pass points to callbacks until the run has ended; return its result, or None with `failure` set."""
        going = True
        while going:
            try:
                going = self._child.alive
                self._print()
                for kind, point in self._new_points():
                    call = callbacks[kind]
                    if call is not None and self.failure is None and call(point) is False:
                        self._stop()
                if going:
                    time.sleep(POLL)
            except KeyboardInterrupt as interrupt:
                if self._stopping:
                    self._child.kill()
                self.failure = interrupt
                self._stop()
            except Exception as error:
                error.add_note("raised by a callback of warren.train; the run was stopped")
                self.failure = error
                self._stop()
        return self._ended()

    def _ended(self) -> TrainingResult | None:
        status, said = self._child.status, [one.removeprefix(ERROR) for one in self._printed if one.startswith(ERROR)]
        if status == REFUSED and self._points is None:
            self.failure = self.failure or ConfigurationError(said or ["the command refused its settings"])
            return None
        if self._points is None or status not in (0, STOPPED):
            why = "; ".join(said) or f"its last lines:\n{self._child.last_lines()}"
            self.failure = self.failure or WarrenError(f"the run failed (exit status {status}): {why}")
            return None
        outcome = read_json(self._points.folder / "outcome.json")
        return TrainingResult(self._points.folder, str(outcome.get("state", "stopped")), outcome)

    def _stop(self) -> None:
        if not self._stopping:
            self._stopping = True
            self._child.ask_to_stop(GRACE)

    def _print(self) -> None:
        """Print the command's new lines, and learn the run's folder from them."""
        *lines, self._half = (self._half + self._output.read()).split(b"\n")
        for line in (one.decode(errors="replace") for one in lines):
            self._printed.append(line)
            if self._points is None and line.startswith(FOLDER):
                self._points = Points(Path(line.removeprefix(FOLDER).strip()), self._since)
            if not self._quiet:
                print(line, flush=True)

    def _new_points(self) -> Iterator[tuple[str, Point]]:
        return iter(()) if self._points is None else self._points.new()

    def close(self) -> None:
        """End the run if it still goes on."""
        self._child.stop()
        self._output.close()
