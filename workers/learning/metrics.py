"""Figures of a run: steps, returns, speed, age of the data; kept across a resume, written to TensorBoard and JSON."""

from __future__ import annotations

import contextlib
import json
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from warren.files import append_whole, drop_half_line

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

WINDOW = 100  # episodes in the mean return by default, as in the environments' own criteria of being solved
SPEED_WINDOW = 10.0  # s over which steps/s is taken
METRICS, EVALUATIONS = "metrics", "evaluation"  # files of a run folder
BOARD_AGAIN = 5.0  # s until TensorBoard gets a new file after one that could not be written


@dataclass
class Progress:
    """The figures of one player's training. Times in seconds, returns undiscounted."""

    window: int = WINDOW  # episodes in the means of returns and lengths
    steps: int = 0
    updates: int = 0
    episodes: int = 0
    version: int = 0
    stale_steps: int = 0  # dropped because their weights were too old
    reset_steps: int = 0  # dropped because the player of a league was reset since
    refused: int = 0  # damaged segments, and those that no update could be made with
    training_seconds: float = 0.0  # since the first environment step, without pauses between a stop and a resume
    returns: deque[float] = field(default_factory=deque)
    lengths: deque[float] = field(default_factory=deque)
    data_age: float = 0.0  # mean, from the end of collecting to the start of the update
    staleness: float = 0.0  # mean weight versions between the data and the update
    losses: dict[str, float] = field(default_factory=dict)
    others: dict[str, deque[float]] = field(default_factory=dict)  # figures of episodes beside return and length
    _clock: float | None = None
    _resumed_at: float = 0.0
    _recent: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=1000))

    def __post_init__(self) -> None:
        """Keep no more returns and lengths than the window takes."""
        self.returns, self.lengths = deque(self.returns, self.window), deque(self.lengths, self.window)

    def start(self, first_step_at: float) -> None:
        """Start the clock at the first environment step (Unix time), but not before a resume."""
        if self._clock is None:
            self._clock = max(first_step_at, self._resumed_at)
            self._recent.append((self._clock, self.steps))

    def add(self, episodes: np.ndarray, steps: int, others: Sequence[str] = ()) -> None:
        """Count environment steps and the episodes that ended in them.

        `episodes` [K, 2 + F]: return, length, and the F figures that `others` names (EnvSettings.figures).
        """
        now = time.time()
        self.steps += steps
        self.episodes += len(episodes)
        self.returns.extend(float(r) for r in episodes[:, 0])
        self.lengths.extend(float(n) for n in episodes[:, 1])
        for column, name in enumerate(others, 2):
            self.others.setdefault(name, deque(maxlen=self.window)).extend(map(float, episodes[:, column]))
        if self._clock is not None:
            self.training_seconds += now - self._clock
            self._clock = now
        self._recent.append((now, self.steps))

    @property
    def mean_return(self) -> float | None:
        """Mean return of the last `window` training episodes; None before there have been so many."""
        return float(np.mean(self.returns)) if len(self.returns) == self.window else None

    @property
    def steps_per_second(self) -> float:
        """Environment steps per second over the last ten seconds, or since the last steps before them."""
        if not self._recent:
            return 0.0
        now = time.time()
        # Up to now, and not up to the newest steps: where updates take long, steps are counted in bursts.
        since, steps = next(
            (point for point in reversed(self._recent) if now - point[0] > SPEED_WINDOW), self._recent[0]
        )
        return (self.steps - steps) / (now - since) if now > since else 0.0

    def means(self) -> dict[str, float]:
        """Return the means of `others` over the last (up to) `window` episodes."""
        return {name: float(np.mean(values)) for name, values in self.others.items() if values}

    def figures(self) -> dict[str, Any]:
        """Return the figures that the live view, TensorBoard and the metrics file show."""
        window_mean = float(np.mean(self.returns)) if self.returns else None
        return {
            "steps": self.steps,
            "steps_per_second": self.steps_per_second,
            "updates": self.updates,
            "episodes": self.episodes,
            "mean_return": window_mean,
            "mean_length": float(np.mean(self.lengths)) if self.lengths else None,
            "window": len(self.returns),
            "version": self.version,
            "data_age": self.data_age,
            "staleness": self.staleness,
            "stale_steps": self.stale_steps,
            "reset_steps": self.reset_steps,
            "refused": self.refused,
            "training_seconds": self.training_seconds,
        }

    def to_meta(self) -> dict[str, Any]:
        """Return the figures that a checkpoint keeps."""
        return {
            "steps": self.steps,
            "updates": self.updates,
            "episodes": self.episodes,
            "version": self.version,
            "stale_steps": self.stale_steps,
            "reset_steps": self.reset_steps,
            "refused": self.refused,
            "training_seconds": self.training_seconds,
            "returns": list(self.returns),
            "lengths": list(self.lengths),
            "others": {name: list(values) for name, values in self.others.items()},
        }

    @classmethod
    def from_meta(cls, meta: Mapping[str, Any], window: int = WINDOW) -> Progress:
        """Return the progress that `to_meta` was called on, with the clock stopped."""
        names = ("steps", "updates", "episodes", "version", "stale_steps", "training_seconds")
        later = {name: meta.get(name, 0) for name in ("refused", "reset_steps")}
        progress = cls(window, **later, **{name: meta[name] for name in names})
        progress._resumed_at = time.time()
        progress.returns.extend(meta["returns"])
        progress.lengths.extend(meta["lengths"])
        channels = {
            f"return_{name}": values for name, values in meta.get("channels", {}).items()
        }  # of older checkpoints
        for name, values in {**channels, **meta.get("others", {})}.items():
            progress.others[name] = deque(values, maxlen=window)
        return progress


class MetricsLog:
    """A writer of figures to `NAME.jsonl` (one object per line) and TensorBoard scalars in the run folder.

    `last_version`: of the weights that training is resumed from. Points after it belong to updates that were lost with
    a killed process; they are dropped, or the curve would step back. A point that a full disk does not take is left
    out, and the next ones are written as usual.
    """

    def __init__(
        self,
        folder: Path,
        last_version: int | None = None,
        name: str = METRICS,
        hyperparameters: Mapping[str, Any] | None = None,
        has_board: bool = True,
    ) -> None:
        self._hyperparameters, self._has_board = dict(hyperparameters or {}), has_board
        self._final: dict[str, Any] = {}
        path = folder / f"{name}.jsonl"
        drop_half_line(path)
        board = folder / "tensorboard"  # each process that writes has a folder of its own there, shown as a run
        self._folder = board if name == METRICS else board / name
        self._purge = None if last_version is None else drop_after(path, last_version)
        self._lines = path.open("ab", buffering=0)
        self._opened: SummaryWriter | None = None
        self._board_again_at = 0.0

    @property
    def _board(self) -> SummaryWriter:
        """TensorBoard's writer, opened with the first point: its imports take a second, which no actor should lose."""
        if self._opened is None:
            from torch.utils.tensorboard import SummaryWriter

            self._opened = SummaryWriter(str(self._folder), max_queue=100, flush_secs=5, purge_step=self._purge)
            if self._hyperparameters:
                rows = (f"| {name} | {value} |" for name, value in self._hyperparameters.items())
                self._opened.add_text("hyperparameters", "\n".join(("| setting | value |", "|---|---|", *rows)))
        return self._opened

    def write(self, figures: Mapping[str, Any], losses: Mapping[str, float]) -> None:
        """Write one point of every curve, at `figures["steps"]`. Raises OSError, once both files were tried."""
        line = json.dumps({**figures, "losses": dict(losses), "time": time.time()}) + "\n"
        try:
            append_whole(self._lines, line.encode())
        finally:
            self._draw(figures, losses)

    def _draw(self, figures: Mapping[str, Any], losses: Mapping[str, float]) -> None:
        if not self._has_board or time.monotonic() < self._board_again_at:
            return
        try:
            self._add_scalars(figures, losses)
        except Exception:
            # TensorBoard's thread has ended with the error, and its writer would raise that for ever.
            self._board_again_at = time.monotonic() + BOARD_AGAIN
            self._close_board()
            raise

    def _add_scalars(self, figures: Mapping[str, Any], losses: Mapping[str, float]) -> None:
        for name, value in figures.items():
            if value is not None and name != "steps":
                self._final[name] = value
                self._board.add_scalar(f"run/{name}", value, figures["steps"])
        for name, value in losses.items():
            self._board.add_scalar(f"loss/{name}", value, figures["steps"])

    def close(self) -> None:
        """Flush and close both files."""
        self._lines.close()
        self._close_board()

    def _close_board(self) -> None:
        opened, self._opened, self._purge = self._opened, None, None
        if opened is not None:
            with contextlib.suppress(OSError):
                if self._hyperparameters and self._final:
                    _add_final(opened, self._hyperparameters, self._final)
                opened.close()


def _add_final(board: SummaryWriter, hyperparameters: Mapping[str, Any], final: Mapping[str, Any]) -> None:
    """Write hyperparameters and the last figures, by which TensorBoard's page HPARAMS compares runs."""
    from torch.utils.tensorboard.summary import hparams

    plain = {
        name: value if isinstance(value, bool | int | float | str) else str(value)
        for name, value in hyperparameters.items()
    }
    numbers = {f"final/{name}": value for name, value in final.items() if isinstance(value, int | float)}
    summaries: Any = hparams(plain, numbers)  # type: ignore[no-untyped-call]
    writer: Any = board.file_writer
    for summary in summaries:
        writer.add_summary(summary)
    for name, value in numbers.items():
        board.add_scalar(name, value)


def drop_after(path: Path, version: int) -> int | None:
    """Cut off the points of versions above `version`; return the steps of the first of them, None if there are none."""
    kept, first = 0, None
    for line in path.read_bytes().splitlines(keepends=True) if path.exists() else []:
        point = json.loads(line)
        if point["version"] > version:
            first = int(point["steps"])
            break
        kept += len(line)
    if first is not None:
        with path.open("r+b") as file:
            file.truncate(kept)
    return first


def read_metrics(folder: Path, name: str = METRICS) -> Sequence[dict[str, Any]]:
    """Return the points of `NAME.jsonl` without an incomplete last line."""
    points = []
    path = folder / f"{name}.jsonl"
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        try:
            points.append(json.loads(line))
        except json.JSONDecodeError:
            break
    return points
