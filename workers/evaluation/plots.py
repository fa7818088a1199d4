"""The pictures of a league, a function each: a Figure of a league's history or its scores, None with nothing to draw.

Colours are those of Okabe and Ito, and orange to blue where a win rate is meant: nearly everybody tells them apart, in
print too. Places are given in inches and nothing is measured first, so a picture of 100 players takes about a second.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.collections import LineCollection
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator
from numpy.typing import NDArray

from league.empirical_game.returns import Returns
from league.matchmaking.view import Player
from league.rules.win_rates import games_of
from league.state.history import History
from workers.evaluation.canvas import (
    columns,
    foot,
    marks,
    means,
    new_axes,
    new_figure,
    place_of,
    shortened,
    time_unit,
    timeline,
    titled,
    with_legend,
)

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
OTHERS, UNMET = "#9a9a9a", "#c8c8c8"
BETTER = LinearSegmentedColormap.from_list("better", ["#b3500a", "#e8a066", "#f7f7f7", "#6ba6d6", "#0b4f8a"])
LABELLED = 100  # players that all have a label; of more, those that learn and a few others
WRITTEN = 20  # players up to whom the payoff's cells hold their numbers
ARROWS = 300  # of the lineage: the newest ones
WINDOWS = 120  # over which ratings are averaged: with each game they go up or down


def payoff(history: History, measured: Returns | None = None) -> Figure | None:
    """Draw win rates of all players against each other, the strongest by Elo first.

    Where two never met in a match and evaluators have `measured` their returns, a circle shows those.
    """
    state = history.state
    players = sorted(state.roster.present, key=lambda player: -state.ratings[player.slot])
    if not players:
        return None
    slots = np.array([player.slot for player in players], dtype=np.intp)
    rates = np.where(games_of(state.payoff.cells[np.ix_(slots, slots)]) > 0.0, state.matrix(slots), np.nan)
    figure = _heat_map(players, rates, (0.0, 1.0), "win rate of the row", "{:.0%}".format)
    said = "strongest first by Elo; grey: never met; bold: learning"
    mean = mean_returns(measured, slots) if measured is not None else np.full_like(rates, np.nan)
    only_measured = np.isnan(rates) & ~np.isnan(mean)
    if only_measured.any():
        largest = float(np.abs(mean[only_measured]).max()) or 1.0
        axes = figure.axes[0]
        width = axes.get_position().width * figure.get_figwidth() * 72 / len(players)  # points of a cell
        rows, columns = np.nonzero(only_measured)
        axes.scatter(
            columns, rows, s=(0.6 * width) ** 2, c=mean[rows, columns], cmap=BETTER, vmin=-largest, vmax=largest,
            linewidths=0,
        )  # fmt: skip
        said += f"\ncircles: evaluators' mean return, within {largest:.2g}"
    figure.text(*foot(figure), said, fontsize=6 if only_measured.any() else 7, linespacing=1.0)
    return titled(figure, f"Payoff of {len(players)} players")


def mean_returns(known: Returns, slots: NDArray[np.intp]) -> NDArray[np.float64]:
    """Return mean returns of `slots` (rows) against each other over both seats, NaN where a seat has no games."""
    first, games = known.matrix(slots), known.games(slots)
    mean: NDArray[np.float64] = np.where((games > 0.0) & (games.T > 0.0), (first - first.T) / 2.0, np.nan)
    return mean


def returns(history: History, known: Returns) -> Figure | None:
    """Draw mean returns of the frozen players against each other over both seats, the best on average first."""
    roster = history.state.roster
    slots = roster.historical
    mean = mean_returns(known, slots)
    # The newest have not been played yet: one's own cell says nothing.
    played = np.flatnonzero((~np.isnan(mean)).sum(axis=1) > ~np.isnan(mean.diagonal()))
    if not len(played):
        return None
    slots, mean = slots[played], mean[np.ix_(played, played)]
    order = np.argsort(-np.nanmean(mean, axis=1), kind="stable")
    largest = float(np.nanmax(np.abs(mean))) or 1.0
    players = [roster.by_slot[int(slot)] for slot in slots[order]]
    figure = _heat_map(
        players, mean[np.ix_(order, order)], (-largest, largest), "mean return of the row", "{:.2g}".format
    )
    figure.text(*foot(figure), "over both seats, the best on average first; grey: not yet played", fontsize=7)
    left = len(roster.historical) - len(players)
    return titled(figure, f"Returns between {len(players)} frozen players" + f", {left} not yet played" * (left > 0))


def ratings(history: History) -> Figure | None:
    """Draw Elo over time: learning players as lines, snapshots as points when they were taken, at their Elo of now."""
    state = history.state
    if not history.ratings:
        return None
    colours = player_colours(history)
    span = history.now - history.began
    window = max(span / WINDOWS, 1e-3)
    unit, in_unit = time_unit(window)
    figure, axes, seconds = timeline(span, f"Elo, mean over {window / in_unit:.2g} {unit}")
    for name, series in sorted(history.ratings.items(), key=lambda item: item[0] in colours):
        times, values = means(*series.points(), window)
        xs = (times - history.began) / seconds
        if name in colours:
            axes.plot(xs, values, color=colours[name], linewidth=1.4, label=shortened(name), alpha=0.9)
        else:
            axes.plot(xs, values, color=OTHERS, linewidth=0.6, alpha=0.4)
    present = [taken for taken in history.snapshots if not state.players[taken.name].removed]
    if present:
        xs = (np.array([taken.time for taken in present]) - history.began) / seconds
        elo = np.array([state.ratings[state.players[taken.name].slot] for taken in present])
        fill = [colours.get(taken.parent, OTHERS) for taken in present]
        size = 28 if len(present) <= 100 else 12
        axes.scatter(xs, elo, s=size, c=fill, edgecolors="white", linewidths=0.5, zorder=3)
        best = int(elo.argmax())
        axes.annotate(
            shortened(present[best].name), (xs[best], elo[best]), xytext=(0, 6), textcoords="offset points",
            ha="right" if xs[best] > axes.get_xlim()[1] / 2 else "left", fontsize=8, zorder=4,
            bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.75, "pad": 0.8},
        )  # fmt: skip
        axes.scatter([], [], s=28, c=OTHERS, label="a snapshot, when taken, with its Elo now")
    others = len(history.ratings) - len(colours)
    if others:
        axes.plot([], [], color=OTHERS, linewidth=0.6, label=f"{others} others that learn")
    return with_legend(figure, axes, "Ratings")


def lineage(history: History) -> Figure | None:
    """Draw lineages: a row for each player that joined, with its snapshots, its resets, and the players it copied."""
    state = history.state
    joined = [player.name for player in state.players.values() if player.parent is None]
    if not joined:
        return None
    place = {name: number for number, name in enumerate(joined)}
    unit, seconds = time_unit(history.now - history.began)

    def moment(time: float) -> float:
        return (time - history.began) / seconds

    size = 8.0 if len(joined) <= 40 else 5.5
    margin = 0.3 + max(len(shortened(name)) for name in joined) * size / 72 * 0.6
    tall = max(0.8, len(joined) * (0.42 if len(joined) <= 12 else 0.22 if len(joined) <= 40 else 0.12))
    figure = new_figure(margin + 6.4 + 1.6, tall + 1.15)
    axes = new_axes(figure, margin, 0.7, 6.4, tall)
    ends = [moment(history.ended.get(name, history.now)) for name in joined]
    starts = [moment(history.joined[name]) for name in joined]
    axes.hlines(
        range(len(joined)), starts, ends, color="#d0d0d0", linewidth=2.0 if len(joined) <= 40 else 0.8, zorder=1
    )

    copies = [restart for restart in history.restarts if restart.source][-ARROWS:]
    segments = [
        [(moment(copy.time), place[_row_of(history, copy.source)]), (moment(copy.time), place[copy.player])]
        for copy in copies
    ]
    axes.add_collection(LineCollection(segments, colors="#777777", linewidths=0.8, zorder=2))
    for down, marker in ((True, "v"), (False, "^")):
        tips = [segment[1] for segment in segments if (segment[1][1] > segment[0][1]) == down]
        axes.scatter(*columns(tips), s=18, marker=marker, c="#444444", linewidths=0, zorder=4)
    resets = [(moment(restart.time), place[restart.player]) for restart in history.restarts if not restart.source]
    axes.scatter(
        *columns(resets),
        s=170 if len(joined) <= 12 else 60 if len(joined) <= 40 else 14,
        marker="|",
        c="#D55E00",
        linewidths=1.4,
        zorder=3,
    )

    taken = [snapshot for snapshot in history.snapshots if not state.players[snapshot.name].removed]
    if taken:
        elo = [state.ratings[state.players[snapshot.name].slot] for snapshot in taken]
        points = axes.scatter(
            [moment(snapshot.time) for snapshot in taken], [place[snapshot.parent] for snapshot in taken],
            s=30 if len(joined) <= 40 else 8, c=elo, cmap="viridis", edgecolors="black", linewidths=0.3, zorder=5,
        )  # fmt: skip
        tall_bar = min(tall, 3.0)
        colours = figure.add_axes(place_of(figure, margin + 6.4 + 0.75, 0.7 + tall - tall_bar, 0.13, tall_bar))
        figure.colorbar(points, cax=colours).set_label("Elo now", fontsize=8)
        colours.tick_params(labelsize=7)
        colours.yaxis.set_major_locator(MaxNLocator(4))
    counts = [sum(snapshot.parent == name for snapshot in taken) for name in joined]
    for number, count in enumerate(counts):
        axes.annotate(
            f"{count}" if count else "", (1.0, number), xycoords=("axes fraction", "data"), xytext=(4, 0),
            textcoords="offset points", va="center", fontsize=size,
        )  # fmt: skip
    axes.set_yticks(range(len(joined)), [shortened(name) for name in joined], fontsize=size)
    axes.set_ylim(len(joined) - 0.4, -0.6)
    axes.set_xlim(-0.01 * moment(history.now) - 1e-9, moment(history.now) * 1.01 + 1e-9)
    axes.set_xlabel(f"time, {unit}", fontsize=9)
    axes.tick_params(axis="y", length=0)
    explained = (
        "circles and the number at the right: snapshots; orange bars: resets; grey arrows: copied a stronger player"
    )
    figure.text(*foot(figure), explained, fontsize=7)
    return titled(figure, "Lineage")


def exploitability(scores: Sequence[Mapping[str, Any]], uniform: float | None = None) -> Figure | None:
    """Draw the exploitability of the main agent and of the Nash mixture over time; `uniform`: of the uniform policy."""
    lines = {"main agent": "main_agent", "Nash mixture of all frozen players": "mixture"}
    known = [score for score in scores if any(score[key] is not None for key in lines.values())]
    if not known:
        return None
    figure, axes, seconds = timeline(known[-1]["seconds"], "exploitability, points a game")
    lowest = np.inf
    for (label, key), colour in zip(lines.items(), COLOURS, strict=False):
        points = [(score["seconds"] / seconds, score[key]) for score in known if score[key] is not None]
        if points:
            xs, ys = columns(points)
            lowest = min(lowest, float(np.min(ys)))
            axes.plot(xs, ys, color=colour, label=f"{label}: {ys[-1]:.3g}", **marks(xs))
    if uniform is not None:
        axes.axhline(uniform, color="#555555", linestyle="--", linewidth=1.0, label=f"uniform policy: {uniform:.3g}")
    if min(lowest, np.inf if uniform is None else uniform) > 0.0:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.yaxis.set_minor_formatter(FuncFormatter(lambda value, _: f"{value:g}" if f"{value:e}"[0] in "25" else ""))
        axes.tick_params(which="minor", labelsize=7)
        axes.grid(which="minor", alpha=0.12)
    else:
        axes.set_ylim(bottom=0.0)
    return with_legend(figure, axes, "Exploitability")


def references(scores: Sequence[Mapping[str, Any]]) -> Figure | None:
    """Draw the mean return of the newest main agent against fixed references over time."""
    names = list(dict.fromkeys(name for score in scores for name in score["references"]))
    if not names:
        return None
    figure, axes, seconds = timeline(scores[-1]["seconds"], "mean return of the main agent")
    for number, name in enumerate(names):
        points = [(s["seconds"] / seconds, s["references"][name]) for s in scores if name in s["references"]]
        xs, ys = columns(points)
        colour = COLOURS[number % len(COLOURS)]
        axes.plot(xs, ys, color=colour, label=f"against {shortened(name)}: {ys[-1]:+.3g}", **marks(xs))
    axes.axhline(0.0, color="#555555", linewidth=0.8)
    return with_legend(figure, axes, "Main agent against references")


def _heat_map(
    players: Sequence[Player],
    values: NDArray[np.float64],
    limits: tuple[float, float],
    meaning: str,
    written: Callable[[float], str],
) -> Figure:
    """Draw `values` (n, n) of each player (row) against each (column), NaN for none, blue towards the higher."""
    n, labels = len(players), [shortened(player.name) for player in players]
    size = 8.0 if n <= 30 else 7.0 if n <= 60 else 5.5
    side = max(1.6, n * min(0.5, 6.5 / n if n > LABELLED else max(0.09, 6.5 / n)))
    margin = 0.35 + max(map(len, labels)) * size / 72 * 0.6
    figure = new_figure(margin + side + 1.1, margin + side + 0.75)
    axes = new_axes(figure, margin, 0.3, side, side)
    axes.spines[:].set_visible(False)
    axes.set_facecolor(UNMET)
    image = axes.imshow(
        np.ma.masked_invalid(values), cmap=BETTER, vmin=limits[0], vmax=limits[1], interpolation="nearest"
    )
    places, mixed = _labelled(players), any(player.frozen for player in players)
    axes.set_yticks(places, [labels[place] for place in places], fontsize=size)
    axes.set_xticks(places, [labels[place] for place in places], fontsize=size, rotation=90)
    axes.tick_params(length=0, top=False, labeltop=True, bottom=False, labelbottom=False)
    for axis in (axes.get_xticklabels(), axes.get_yticklabels()):
        for label, place in zip(axis, places, strict=True):
            label.set_fontweight("bold" if mixed and not players[place].frozen else "normal")
    if n <= WRITTEN:
        middle, reach = sum(limits) / 2.0, (limits[1] - limits[0]) / 2.0
        for row, column in np.argwhere(~np.isnan(values)):
            colour = "white" if abs(values[row, column] - middle) > 0.6 * reach else "black"
            text = written(values[row, column])
            axes.text(column, row, text, ha="center", va="center", fontsize=6.5, color=colour)
    tall = min(side, 3.0)
    bar = figure.add_axes(place_of(figure, margin + side + 0.15, 0.3 + side - tall, 0.15, tall))
    figure.colorbar(image, cax=bar).set_label(meaning, fontsize=8)
    bar.tick_params(labelsize=7)
    return figure


def player_colours(history: History) -> dict[str, str]:
    """Return a colour for each player that joined to learn, or for the strongest now where there are too many."""
    state, names = history.state, list(history.ratings)
    if len(names) > len(COLOURS):
        names.sort(key=lambda name: -state.ratings[state.players[name].slot])
    return dict(zip(names, COLOURS, strict=False))


def _row_of(history: History, name: str) -> str:
    """Return the row that a player is in: its own, or for a snapshot its parent's."""
    return history.state.players[name].parent or name


def _labelled(players: Sequence[Player]) -> list[int]:
    """Return the places of the players whose names are written."""
    if len(players) <= LABELLED:
        return list(range(len(players)))
    apart = len(players) // 50 + 1
    learning = [place for place, player in enumerate(players) if not player.frozen]
    if len(learning) > 25:
        return list(range(0, len(players), apart))
    free = [place for place in range(0, len(players), apart) if all(abs(place - other) >= apart for other in learning)]
    return sorted(learning + free)
