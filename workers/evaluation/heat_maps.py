"""The pictures of win rates and returns between players: a square for each pair, bluer for higher values.

Nearly everybody can tell orange from blue, in print too. Places are given in inches and nothing is measured first, so a
picture of 100 players takes about a second.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from numpy.typing import NDArray

from league.empirical_game.returns import Returns
from league.matchmaking.view import Player
from league.rules.win_rates import games_of
from league.state.history import History
from workers.evaluation.canvas import foot, new_axes, new_figure, place_of, shortened, titled

UNMET = "#c8c8c8"
BETTER = LinearSegmentedColormap.from_list("better", ["#b3500a", "#e8a066", "#f7f7f7", "#6ba6d6", "#0b4f8a"])
LABELLED = 100  # most players that all have a label; of more, learning players and a few others have one
ROUND = 8.0  # points of a cell that has room for a circle
WRITTEN = 20  # most players with which cells show their numbers


def payoff(history: History, measured: Returns | None = None) -> Figure | None:
    """Draw win rates of all players against each other, the strongest by Elo first.

    For two that never met in a match but whose returns evaluators have `measured`, a circle shows the return, or a
    square if cells are small.
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
        marker, size, shape = ("o", 0.6, "circles") if width >= ROUND else ("s", 1.0, "cells without a match")
        axes.scatter(
            columns, rows, s=(size * width) ** 2, c=mean[rows, columns], cmap=BETTER, vmin=-largest, vmax=largest,
            linewidths=0, marker=marker,
        )  # fmt: skip
        said += f"\n{shape}: evaluators' mean return, within {largest:.2g}"
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
    # Leave out the newest, which have not been played yet; a player's cell with itself does not count.
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


def between(names: Sequence[str], mean: NDArray[np.float64]) -> Figure:
    """Draw mean returns (n, n) of players against each other; nothing against themselves."""
    players = [Player(name, slot, "", frozen=True) for slot, name in enumerate(names)]
    values = np.where(np.eye(len(names), dtype=np.bool_), np.nan, mean)
    largest = float(np.nanmax(np.abs(values))) or 1.0
    figure = _heat_map(players, values, (-largest, largest), "mean return of the row", "{:.2g}".format)
    figure.text(*foot(figure), "over both seats, the best on average first", fontsize=7)
    return titled(figure, f"Tournament of {len(names)} players")


def _heat_map(
    players: Sequence[Player],
    values: NDArray[np.float64],
    limits: tuple[float, float],
    meaning: str,
    written: Callable[[float], str],
) -> Figure:
    """Draw `values` (n, n) of each player (row) against each (column), bluer for higher ones; NaN: no value."""
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
