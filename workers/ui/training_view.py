"""The view of a training run: a live panel in a terminal, plain lines anywhere else."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from workers.ui import returns
from workers.ui.console import Terminal

LINE_EVERY = 5.0  # s between plain lines


class View(Terminal):
    """The view of a training run; `say` prints a line that stays."""

    def __init__(self, title: str, goal: float | None, total_steps: int, stream: TextIO = sys.stdout) -> None:
        super().__init__(stream)
        self.title, self.goal, self.total_steps = title, goal, total_steps
        self._line_at = 0.0

    def show(
        self,
        figures: Mapping[str, Any] | None,
        depths: Mapping[str, int],
        processes: str,
        notes: Sequence[str] = (),
    ) -> None:
        """Show the newest figures (None before the learner's first), queue depths and processes.

        `notes`: troubles, and what is waited for.
        """
        if self._live is not None:
            self._live.update(self._panel(figures, depths, processes, notes))
        elif time.monotonic() >= self._line_at:
            self._line_at = time.monotonic() + LINE_EVERY
            self.say(plain_line(figures, depths, processes, self.goal))
            for note in notes:
                self.say(f"  {note}")

    def _panel(
        self,
        figures: Mapping[str, Any] | None,
        depths: Mapping[str, int],
        processes: str,
        notes: Sequence[str] = (),
    ) -> Panel:
        grid = Table.grid(padding=(0, 2))
        for _ in range(4):
            grid.add_column(justify="left", min_width=14)
        cells = [(name, value) for name, value in cells_of(figures, depths, processes)]
        for left, right in zip(cells[::2], [*cells[1::2], ("", "")], strict=False):
            grid.add_row(Text(left[0], "dim"), Text(left[1]), Text(right[0], "dim"), Text(right[1]))
        done, of = self._progress(figures)
        bar = Table.grid(padding=(0, 2))
        bar.add_row("[dim]to the goal", ProgressBar(total=of, completed=done, width=40), f"{done:,.0f} of {of:,.0f}")
        return self.framed(self.title, grid, bar, notes=notes)

    def _progress(self, figures: Mapping[str, Any] | None) -> tuple[float, float]:
        if self.goal is not None and self.goal > 0:
            return max(0.0, (figures or {}).get("mean_return") or 0.0), self.goal
        return (figures or {}).get("steps", 0), self.total_steps


def cells_of(figures: Mapping[str, Any] | None, depths: Mapping[str, int], processes: str) -> list[tuple[str, str]]:
    """Return (name, value) of all figures in the view."""
    waiting = ", ".join(f"{name} {count}" for name, count in depths.items())
    if figures is None:
        queues = [("queues", waiting)] if waiting else []  # not read yet
        return [("state", "waiting for the first update"), ("processes", processes), *queues]
    mean = figures["mean_return"]
    evaluated = figures.get("evaluated")
    refused, stale = figures.get("refused", 0), figures.get("stale_steps", 0)
    return [
        ("steps", f"{figures['steps']:,}"),
        ("steps/s", f"{figures['steps_per_second']:,.0f}"),
        ("mean return", "none yet" if mean is None else f"{returns.shown(mean)} over {figures['window']} episodes"),
        ("episodes", f"{figures['episodes']:,}"),
        *([("evaluation", _of_evaluation(evaluated))] if evaluated else []),
        ("weight version", f"{figures['version']:,}"),
        ("data age", f"{figures['data_age'] * 1e3:.0f} ms, {figures['staleness']:.1f} versions"),
        ("queues", waiting or "unknown"),
        ("processes", processes),
        *([("too old", f"{stale:,} steps dropped")] if stale else []),
        *([("refused", f"{refused:,} segments; see the learner's log")] if refused else []),
    ]


def _of_evaluation(evaluated: Mapping[str, Any]) -> str:
    """Return the newest evaluation of a run as text."""
    return f"{returns.shown(evaluated['mean_return'])} at {evaluated['steps']:,} steps"


def plain_line(figures: Mapping[str, Any] | None, depths: Mapping[str, int], processes: str, goal: float | None) -> str:
    """Return the same as one line of text."""
    line = ", ".join(f"{name} {value}" for name, value in cells_of(figures, depths, processes))
    return f"{line}, goal {goal:g}" if goal is not None else line
