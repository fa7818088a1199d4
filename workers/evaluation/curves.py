"""The curves of a league over time: ratings, exploitability, returns against references; None with nothing to draw."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from league.empirical_game.least_exploitable import members_gain
from league.rules.ratings import elo_intervals
from league.state.history import History
from workers.evaluation.canvas import (
    COLOURS,
    OTHERS,
    columns,
    foot,
    marks,
    means,
    shortened,
    time_unit,
    timeline,
    with_legend,
)

NAMED = 3  # members whose alpha-rank is written: as many as have room
WINDOWS = 120  # windows over which ratings, which change with each game, are averaged


def ratings(history: History) -> Figure | None:
    """Draw Elo over time: learning players as lines, snapshots as points when they were taken, at their present Elo."""
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
        lower, upper = elo_intervals(np.array(state.ratings), state.payoff.cells)
        slots = [state.players[taken.name].slot for taken in present]
        axes.errorbar(xs, elo, [elo - lower[slots], upper[slots] - elo], fmt="none", ecolor="#bbbbbb", linewidth=0.6)
        best = int(elo.argmax())
        axes.annotate(
            shortened(present[best].name), (xs[best], elo[best]), xytext=(0, 6), textcoords="offset points",
            ha="right" if xs[best] > axes.get_xlim()[1] / 2 else "left", fontsize=8, zorder=4,
            bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.75, "pad": 0.8},
        )  # fmt: skip
        axes.scatter([], [], s=28, c=OTHERS, label="a snapshot, when taken: its Elo now, 95 %")
    others = len(history.ratings) - len(colours)
    if others:
        axes.plot([], [], color=OTHERS, linewidth=0.6, label=f"{others} others that learn")
    return with_legend(figure, axes, "Ratings")


def player_colours(history: History) -> dict[str, str]:
    """Return a colour for each player that joined to learn; if there are too many, for those that are strongest now."""
    state, names = history.state, list(history.ratings)
    if len(names) > len(COLOURS):
        names.sort(key=lambda name: -state.ratings[state.players[name].slot])
    return dict(zip(names, COLOURS, strict=False))


def exploitability(scores: Sequence[Mapping[str, Any]], uniform: float | None = None) -> Figure | None:
    """Draw the exploitability of the main agent and of the Nash mixture over time; `uniform`: of the uniform policy.

    A band holds the gain of the mixture's best member against it, with the league's confidence: a lower bound of the
    mixture's exploitability, also in games too large to compute it. No band where the mixture withstands best
    responses of the whole game: a member's gain is not computed then.
    """
    lines = {"main agent": "main_agent", "Nash mixture of all frozen players": "mixture"}
    known = [score for score in scores if any(score[key] is not None for key in lines.values())]
    gains = [(score["seconds"], gain) for score in scores if (gain := members_gain(score)) is not None]
    if not known and not gains:
        return None
    figure, axes, seconds = timeline(known[-1]["seconds"] if known else gains[-1][0], "exploitability, points a game")
    lowest = np.inf
    for (label, key), colour in zip(lines.items(), COLOURS, strict=False):
        points = [(score["seconds"] / seconds, score[key]) for score in known if score[key] is not None]
        if points:
            xs, ys = columns(points)
            lowest = min(lowest, float(np.min(ys)))
            axes.plot(xs, ys, color=colour, label=f"{label}: {ys[-1]:.3g}", **marks(xs))
    if gains:
        least, most = zip(*(gain for _, gain in gains), strict=True)
        xs = np.array([moment / seconds for moment, _ in gains])
        label = f"gain of the mixture's best member: {least[-1]:.3g} to {most[-1]:.3g}"
        floor = lowest / 2.0 if known else 0.0  # 0 has no logarithm
        axes.fill_between(
            xs,
            np.maximum(least, floor),
            np.maximum(most, floor),
            color=COLOURS[1],
            alpha=0.15,
            linewidth=0,
            label=label,
        )
        if not known:
            axes.set_ylim(bottom=0.0)
    if uniform is not None:
        axes.axhline(uniform, color="#555555", linestyle="--", linewidth=1.0, label=f"uniform policy: {uniform:.3g}")
    if known and min(lowest, np.inf if uniform is None else uniform) > 0.0:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.yaxis.set_minor_formatter(FuncFormatter(lambda value, _: f"{value:g}" if f"{value:e}"[0] in "25" else ""))
        axes.tick_params(which="minor", labelsize=7)
        axes.grid(which="minor", alpha=0.12)
    else:
        axes.set_ylim(bottom=0.0)
    return with_legend(figure, axes, "Exploitability")


def kinds(scores: Sequence[Mapping[str, Any]]) -> Figure | None:
    """Draw each kind of player's share of the mixture over time, one above the other; name the members ranked first.

    These are the newest score's, by alpha-rank.
    """
    known = [score for score in scores if score.get("shares_by_kind")]
    if not known:
        return None
    names = list(dict.fromkeys(kind for score in known for kind in score["shares_by_kind"]))
    figure, axes, seconds = timeline(known[-1]["seconds"], "share of the Nash mixture")
    xs = [score["seconds"] / seconds for score in known]
    shares = [[score["shares_by_kind"].get(kind, 0.0) for score in known] for kind in names]
    frozen = known[-1]["frozen_by_kind"]
    labels = [
        f"{kind}: {share[-1]:.0%}, {frozen.get(kind, 0)} frozen" for kind, share in zip(names, shares, strict=True)
    ]
    colours = [COLOURS[number % len(COLOURS)] for number in range(len(names))]
    axes.stackplot(xs, shares, labels=labels, colors=colours, alpha=0.75, linewidth=0)
    axes.set_ylim(0.0, 1.0)
    if ranked := list((known[-1].get("alpha_rank") or {}).items())[:NAMED]:
        said = ", ".join(f"{shortened(name)} {share:.2f}" for name, share in ranked)
        figure.text(*foot(figure), f"alpha-rank of members, now: {said}", fontsize=7)
    return with_legend(figure, axes, "Kinds of players in the mixture")


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
