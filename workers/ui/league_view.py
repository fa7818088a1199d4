"""What a person sees while a league trains: its players, its strength, what waits where."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rich.panel import Panel
from rich.table import Table

from workers.ui.training_view import LINE_EVERY, View


@dataclass
class LeagueFigures:
    """The newest that was heard of a league; handlers of events write, the view reads."""

    players: dict[str, dict[str, Any]] = field(default_factory=dict)  # a learner's status each
    score: dict[str, Any] = field(default_factory=dict)  # the evaluator's, see workers/evaluation/scores.py
    counters: dict[str, int] = field(default_factory=dict)  # of the league: matches issued, counted, ...

    @property
    def steps(self) -> int:
        """Decisions of all players."""
        return sum(figures.get("steps", 0) for figures in self.players.values())


class LeagueView(View):
    """One live panel in a terminal, plain lines anywhere else."""

    def show_league(self, figures: LeagueFigures, waiting: Mapping[str, int], processes: str) -> None:
        """The newest figures, messages waiting by queue, how many processes run."""
        if self._live is not None:
            self._live.update(self._league_panel(figures, waiting, processes))
        elif time.monotonic() >= self._line_at:
            self._line_at = time.monotonic() + LINE_EVERY
            self.say(league_line(figures, processes))

    def _league_panel(self, figures: LeagueFigures, waiting: Mapping[str, int], processes: str) -> Panel:
        players = Table(box=None, padding=(0, 2), header_style="dim")
        players.add_column("player")
        for column in ("steps", "steps/s", "version", "mean return"):
            players.add_column(column, justify="right")
        for name, found in figures.players.items():
            mean = found.get("mean_return")
            players.add_row(
                name,
                f"{found.get('steps', 0):,}",
                f"{found.get('steps_per_second', 0.0):,.0f}",
                f"{found.get('version', 0):,}",
                "" if mean is None else f"{mean:+.3f}",
            )
        rest = Table.grid(padding=(0, 2))
        for name, value in cells_of(figures, waiting, processes):
            rest.add_row(f"[dim]{name}", value)
        outer = Table.grid()
        outer.add_row(players)
        outer.add_row(rest)
        return Panel(outer, title=self.title, title_align="left", expand=False)


def strength(score: Mapping[str, Any]) -> str:
    """The evaluator's figures in words."""
    if not score:
        return "not known yet"
    found = [
        f"{words} {score[name]:.4f}"
        for name, words in (("mixture", "Nash mixture"), ("main_agent", "main agent"))
        if score.get(name) is not None
    ]
    parts = [f"exploitability: {', '.join(found)}"] if found else []
    parts += [f"main agent against {name} {value:+.3f}" for name, value in score["references"].items()]
    return "; ".join(parts) or "not known yet"


def cells_of(figures: LeagueFigures, waiting: Mapping[str, int], processes: str) -> list[tuple[str, str]]:
    """(name, value) of what is shown beside the players."""
    counters, score = figures.counters, figures.score
    return [
        ("steps", f"{figures.steps:,}"),
        ("matches", f"{counters.get('counted', 0):,} counted of {counters.get('issued', 0):,} issued"),
        ("frozen players", f"{score.get('frozen', 0)}; {score.get('games', 0):,} games between them"),
        ("strength", strength(score)),
        ("queues", ", ".join(f"{name} {count}" for name, count in waiting.items()) or "unknown"),
        ("processes", processes),
    ]


def league_line(figures: LeagueFigures, processes: str) -> str:
    """The same as one line of text."""
    cells = [cell for cell in cells_of(figures, {}, processes) if cell[0] != "queues"]
    return ", ".join(f"{name} {value}" for name, value in cells)
