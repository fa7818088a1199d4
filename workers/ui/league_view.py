"""The view of a league that trains: its players, its strength, its queues."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from workers.ui.training_view import LINE_EVERY, View

LEARNING = "learning"  # the normal state of a player


@dataclass
class LeagueFigures:
    """The newest figures of a league; handlers of events write, the view reads."""

    players: dict[str, dict[str, Any]] = field(default_factory=dict)  # player -> newest status of its learner
    score: dict[str, Any] = field(default_factory=dict)  # the evaluator's, see workers/evaluation/scores.py
    counters: dict[str, int] = field(default_factory=dict)  # the league's: matches issued, counted, ...
    states: dict[str, str] = field(default_factory=dict)  # player -> learning, paused, frozen, removed, no learner
    kept: dict[str, int] = field(default_factory=dict)  # player -> decisions as the league knows them

    def steps_of(self, player: str) -> int:
        """Return the decisions of one player, as its learner or, before its first status, the league knows them."""
        return max(int(self.players.get(player, {}).get("steps", 0)), self.kept.get(player, 0))

    @property
    def steps(self) -> int:
        """Return the decisions of all players."""
        return sum(self.steps_of(player) for player in dict.fromkeys([*self.players, *self.kept]))


class LeagueView(View):
    """The view of a league: a live panel in a terminal, plain lines anywhere else."""

    def show_league(
        self, figures: LeagueFigures, waiting: Mapping[str, int], processes: str, notes: Sequence[str] = ()
    ) -> None:
        """Show the newest figures, waiting messages by queue, the processes, and notes on troubles and waiting."""
        if self._live is not None:
            self._live.update(self._league_panel(figures, waiting, processes, notes))
        elif time.monotonic() >= self._line_at:
            self._line_at = time.monotonic() + LINE_EVERY
            self.say(league_line(figures, processes, self.goal))
            for note in notes:
                self.say(f"  {note}")

    def _league_panel(
        self, figures: LeagueFigures, waiting: Mapping[str, int], processes: str, notes: Sequence[str]
    ) -> Panel:
        players = Table(box=None, padding=(0, 2), header_style="dim")
        players.add_column("player")
        players.add_column("state")
        for column in ("steps", "steps/s", "version", "mean return"):
            players.add_column(column, justify="right")
        for name, found in figures.players.items():
            mean, state = found.get("mean_return"), figures.states.get(name, "")
            # The last speed of a learner that has ended is out of date.
            speed = f"{found.get('steps_per_second', 0.0):,.0f}" if state in ("", LEARNING) else ""
            players.add_row(
                Text(name),
                Text(state, "" if state == LEARNING else "yellow"),
                f"{figures.steps_of(name):,}",
                speed,
                f"{found.get('version', 0):,}",
                "" if mean is None else f"{mean:+.3f}",
            )
        rest = Table.grid(padding=(0, 2))
        for name, value in cells_of(figures, waiting, processes, self.goal):
            rest.add_row(Text(name, "dim"), Text(value))  # no markup: its names came over the network
        return self.framed(self.title, players, rest, notes=notes)


def strength(score: Mapping[str, Any]) -> str:
    """Return the evaluator's figures as text."""
    if not score:
        return "not known yet"
    found = [
        f"{title} {score[name]:.4f}"
        for name, title in (("mixture", "Nash mixture"), ("main_agent", "main agent"), ("uniform", "uniform play"))
        if score.get(name) is not None
    ]
    parts = [f"exploitability: {', '.join(found)}"] if found else []
    parts += [f"main agent against {name} {value:+.3f}" for name, value in score["references"].items()]
    return "; ".join(parts) or "not known yet"


def cells_of(
    figures: LeagueFigures, waiting: Mapping[str, int], processes: str, goal: float | None = None
) -> list[tuple[str, str]]:
    """Return (name, value) of the figures beside the players. `goal`: exploitability at which the run ends."""
    counters, score = figures.counters, figures.score
    return [
        ("steps", f"{figures.steps:,}"),
        ("matches", f"{counters.get('counted', 0):,} counted of {counters.get('issued', 0):,} issued"),
        ("frozen players", f"{score.get('frozen', 0)}; {score.get('games', 0):,} games between them"),
        ("strength", strength(score)),
        *([] if goal is None else [("goal", f"exploitability {goal:g} of the Nash mixture")]),
        ("queues", ", ".join(f"{name} {count}" for name, count in waiting.items()) or "unknown"),
        ("processes", processes),
    ]


def league_line(figures: LeagueFigures, processes: str, goal: float | None = None) -> str:
    """Return the same as one line of text, with the players that are not learning."""
    cells = [cell for cell in cells_of(figures, {}, processes, goal) if cell[0] != "queues"]
    idle = [f"{name} {state}" for name, state in figures.states.items() if state != LEARNING]
    return ", ".join([*(f"{name} {value}" for name, value in cells), *idle])
