"""The picture of players' descent: a row for each player that joined, with its snapshots, resets and copies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from matplotlib.collections import LineCollection
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from league.state.history import History, Snapshot
from workers.evaluation.canvas import (
    COLOURS,
    columns,
    foot,
    new_axes,
    new_figure,
    place_of,
    shortened,
    time_unit,
    titled,
)

ARROWS = 300  # the newest ones
WIDTH, BOTTOM = 6.4, 0.7  # in, of the rows
EXPLAINED = (
    "circles: snapshots, diamonds: averages, their number at the right; orange bars: resets; "
    "grey arrows: copied a stronger player"
)


def lineage(history: History) -> Figure | None:
    """Draw lineages: a row for each player that joined, with its snapshots, its resets, and the players it copied."""
    joined = [player.name for player in history.state.players.values() if player.parent is None]
    if not joined:
        return None
    rows = _Rows(history, joined)
    rows.draw_lives()
    rows.draw_restarts()
    taken = [snapshot for snapshot in history.snapshots if not history.state.players[snapshot.name].removed]
    if taken:
        rows.draw_snapshots(taken)
    rows.draw_counts(taken)
    rows.finish_axes()
    return titled(rows.figure, "Lineage")


class _Rows:
    """The axes of a lineage: time to the right, the players from top to bottom in the order in which they joined."""

    def __init__(self, history: History, joined: Sequence[str]) -> None:
        self._history, self._joined = history, joined
        self._row = {name: number for number, name in enumerate(joined)}
        self._unit, self._seconds = time_unit(history.now - history.began)
        self._few, self._many = len(joined) <= 12, len(joined) > 40
        self._size = 5.5 if self._many else 8.0
        self._margin = 0.3 + max(len(shortened(name)) for name in joined) * self._size / 72 * 0.6
        self._height = max(0.8, len(joined) * (0.42 if self._few else 0.12 if self._many else 0.22))
        self.figure = new_figure(self._margin + WIDTH + 1.6, self._height + 1.15)
        self._axes = new_axes(self.figure, self._margin, BOTTOM, WIDTH, self._height)

    def draw_lives(self) -> None:
        ends = [self._moment(self._history.ended.get(name, self._history.now)) for name in self._joined]
        starts = [self._moment(self._history.joined[name]) for name in self._joined]
        width = 0.8 if self._many else 2.0
        self._axes.hlines(range(len(self._joined)), starts, ends, color="#d0d0d0", linewidth=width, zorder=1)

    def draw_restarts(self) -> None:
        """Draw an arrow from the copied player's row for each copy, and a bar for each reset."""
        copies = [restart for restart in self._history.restarts if restart.source][-ARROWS:]
        segments = [[self._place(copy.time, copy.source), self._place(copy.time, copy.player)] for copy in copies]
        self._axes.add_collection(LineCollection(segments, colors="#777777", linewidths=0.8, zorder=2))
        for down, marker in ((True, "v"), (False, "^")):
            tips = [tip for start, tip in segments if (tip[1] > start[1]) == down]
            self._axes.scatter(*columns(tips), s=18, marker=marker, c="#444444", linewidths=0, zorder=4)
        resets = [self._place(restart.time, restart.player) for restart in self._history.restarts if not restart.source]
        size = 170 if self._few else 14 if self._many else 60
        self._axes.scatter(*columns(resets), s=size, marker="|", c=COLOURS[1], linewidths=1.4, zorder=3)

    def draw_snapshots(self, taken: Sequence[Snapshot]) -> None:
        """Draw a circle for each snapshot in its Elo's colour, and the scale of colours beside the rows.

        Averages of weights are diamonds, above the circles.
        """
        state = self._history.state
        elo = {one.name: state.ratings[state.players[one.name].slot] for one in taken}
        norm = Normalize(min(elo.values()), max(elo.values()))
        averages = [one for one in taken if state.players[one.name].is_average]
        for marker, lift, shown in (("D", 0.28, averages), ("o", 0.0, [one for one in taken if one not in averages])):
            xs, ys = columns([self._place(one.time, one.parent) for one in shown])
            points = self._axes.scatter(
                xs, ys - lift, s=(8 if self._many else 30) * (1.0 - lift), marker=marker,
                c=[elo[one.name] for one in shown], norm=norm, cmap="viridis", edgecolors="black", linewidths=0.3,
                zorder=5,
            )  # fmt: skip
        tall = min(self._height, 3.0)
        left = self._margin + WIDTH + 0.75
        scale = self.figure.add_axes(place_of(self.figure, left, BOTTOM + self._height - tall, 0.13, tall))
        self.figure.colorbar(points, cax=scale).set_label("Elo now", fontsize=8)
        scale.tick_params(labelsize=7)
        scale.yaxis.set_major_locator(MaxNLocator(4))

    def draw_counts(self, taken: Sequence[Snapshot]) -> None:
        """Write each player's number of snapshots at the right end of its row."""
        counts = Counter(snapshot.parent for snapshot in taken)
        for name, row in self._row.items():
            self._axes.annotate(
                f"{counts[name] or ''}", (1.0, row), xycoords=("axes fraction", "data"), xytext=(4, 0),
                textcoords="offset points", va="center", fontsize=self._size,
            )  # fmt: skip

    def finish_axes(self) -> None:
        names, axes = [shortened(name) for name in self._joined], self._axes
        axes.set_yticks(range(len(names)), names, fontsize=self._size)
        axes.set_ylim(len(names) - 0.4, -0.6)
        now = self._moment(self._history.now)
        axes.set_xlim(-0.01 * now - 1e-9, now * 1.01 + 1e-9)
        axes.set_xlabel(f"time, {self._unit}", fontsize=9)
        axes.tick_params(axis="y", length=0)
        self.figure.text(*foot(self.figure), EXPLAINED, fontsize=7)

    def _moment(self, time: float) -> float:
        return (time - self._history.began) / self._seconds

    def _place(self, time: float, name: str) -> tuple[float, float]:
        """Return the place of a moment in the row of a player: a snapshot is in its parent's."""
        return self._moment(time), self._row[self._history.state.players[name].parent or name]
