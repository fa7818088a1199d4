"""Pictures of the strength benchmark: every seed's curve, with a colour per side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from benchmarks.league.figures import Line, by_run, exploitability, pairs, worth
from benchmarks.league.sides import CONTROL, LEAGUE, SELF_PLAY

TITLES = {
    "rps": "Rock, paper, scissors",
    "spinning_top": "Spinning top",
    "kuhn": "Kuhn poker",
    "leduc": "Leduc poker",
    "liars_dice": "Liar's dice",
    "goofspiel_4": "Goofspiel, 4 cards, hidden bids",
    "goofspiel_5": "Goofspiel, 5 cards",
    "blotto": "Blotto, 105 strategies",
    "phantom_ttt": "Phantom tic-tac-toe",
    "dark_hex_3": "Dark hex, 3 by 3",
    "connect_four": "Connect Four",
}
GOALS = {"rps": 0.05, "spinning_top": 0.05, "kuhn": 0.005}
COLORS = {LEAGUE: "tab:blue", "main_agent": "tab:cyan", CONTROL: "tab:purple", SELF_PLAY: "tab:red"}
COLORS |= {"nfsp": "tab:orange", "psro": "tab:green", "psro_nash": "tab:olive"}
LABELS = {
    LEAGUE: "league, its Nash mixture",
    "main_agent": "league, its main agent",
    CONTROL: "control: self-play, the mixture of its snapshots",
    SELF_PLAY: "plain self-play",
    "nfsp": "OpenSpiel NFSP",
    "psro": "OpenSpiel PSRO (exact best responses)",
    "psro_nash": "OpenSpiel PSRO, Nash instead of alpha-Rank",
}


def draw(path: Path, game: str, lines: Sequence[Line], goal: float | None = None, decisions: bool = False) -> None:
    """Draw every seed's curve over the seconds of training, or main's decisions, with a colour per side, as a PNG."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator, NullFormatter

    figure = Figure(figsize=(7.5, 4.4), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    shown: set[str] = set()

    def curve(name: str, along: list[float], values: list[float], width: float) -> None:
        label = None if name in shown else LABELS.get(name, name)
        shown.add(name)
        axes.plot(along, values, color=COLORS.get(name), linewidth=width, alpha=0.8, label=label)

    known = {which: points for which, points in by_run(lines).items() if exploitability(points[-1]) is not None}
    order = [*LABELS, *sorted({side for side, _ in known} - set(LABELS))]
    for (side, _), points in sorted(known.items(), key=lambda run: order.index(run[0][0])):
        along = [point["main_steps" if decisions else "seconds"] for point in points]
        if side == LEAGUE:
            curve("main_agent", along, [point["main_agent"] for point in points], 0.7)
        curve(side, along, [exploitability(point) or 0.0 for point in points], 1.5)
    if goal is not None:
        axes.axhline(goal, color="black", linestyle="--", linewidth=0.8, label=f"target: {goal:g}")
    counts = Counter(side for side, _ in known)
    least, most = min(counts.values(), default=0), max(counts.values(), default=0)
    seeds = f"{most} seed{'s' if most > 1 else ''} each" if least == most else f"{least} to {most} seeds each"
    axes.set(
        title=f"{TITLES[game]}, {seeds}",
        xlabel="decisions of the main agent" if decisions else "seconds of training",
        ylabel="exploitability, points a game",
        yscale="log",
    )
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.legend(fontsize="small")
    axes.grid(alpha=0.3, which="both")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)


def compare(path: Path, games: Mapping[str, Sequence[Line]]) -> None:
    """Draw each game's exploitability of the league over that of its control: a mark per seed, a bar at the mean."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator, NullFormatter

    figure = Figure(figsize=(7.5, 1.4 + 0.5 * len(games)), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    labels = []
    for row, (game, lines) in enumerate(games.items()):
        labels.append(f"{TITLES[game]} ({len(pairs(lines, worth))})")
        for of, name, marker, shift in (
            (worth, "the mixture", "o", -0.12),
            (lambda line: line.get("main_agent"), "the main agent's last iterate", "x", 0.12),
        ):
            ratios = np.array([league / control for league, control in pairs(lines, of)])
            if len(ratios):
                color, label = f"tab:{'blue' if marker == 'o' else 'orange'}", None if row else name
                axes.plot(ratios, np.full(len(ratios), row + shift), marker, color=color, markersize=4, label=label)
                axes.plot([np.exp(np.log(ratios).mean())] * 2, [row + shift - 0.12, row + shift + 0.12], color=color)
    axes.axvline(1.0, color="black", linewidth=0.8)
    axes.set(
        xscale="log",
        title="Exploitability of leagues over that of their controls",
        xlabel="ratio: below 1 the league is stronger\na mark a seed, bars at geometric means",
    )
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_yticks(range(len(labels)), labels)
    axes.invert_yaxis()
    axes.legend(fontsize="small")
    axes.grid(alpha=0.3, axis="x", which="both")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
