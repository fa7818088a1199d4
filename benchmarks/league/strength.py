"""A league's strength: exploitability of its Nash mixture and of its main agent, beside other ways.

Beside each league its control: one player with the main agent's settings that plays itself, and the mixture of its own
snapshots by the same evaluator. Rock-paper-scissors and the spinning top: beside plain self-play with the same settings
as well. Leduc poker: beside OpenSpiel's NFSP and PSRO. Every run is a process of its own with one thread, one after
another or `jobs` at a time, seed by seed in turn, so that what else the machine does falls on all alike; all have the
same time of training on the same cores. The curves of all of them are kept.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

SECONDS = {"rps": 20.0, "spinning_top": 45.0, "kuhn": 240.0, "leduc": 240.0}  # of training, each side and seed
TITLES = {
    "rps": "Rock, paper, scissors",
    "spinning_top": "Spinning top",
    "kuhn": "Kuhn poker",
    "leduc": "Leduc poker",
}
GOALS = {"rps": 0.05, "spinning_top": 0.05, "kuhn": 0.02}
POINTS = 40  # of a curve, at most
Line = dict[str, Any]

# Side of a game -> its module and that module's arguments.
LEAGUE, SELF_PLAY, CONTROL = "league", "selfplay", "control"
PEERS = ("nfsp", "psro", "psro_nash")
SIDES = {
    "rps": (LEAGUE, CONTROL, SELF_PLAY),
    "spinning_top": (LEAGUE, CONTROL, SELF_PLAY),
    "kuhn": (LEAGUE, CONTROL),
    "leduc": (LEAGUE, CONTROL, *PEERS),
}


def command(game: str, side: str, seed: int, seconds: float, out: Path, clock: str = "wall") -> list[str]:
    """Return the command that runs one side of one seed and adds its curve's lines to `out`."""
    arguments = ["--seconds", str(seconds), "--seed", str(seed), "--every", str(seconds / POINTS), "--out", str(out)]
    if side in PEERS:
        peer, _, meta_strategy = side.partition("_")
        chosen = ["--meta-strategy", meta_strategy] if meta_strategy else []
        return [sys.executable, "-m", "benchmarks.league.leduc_peers", peer, *arguments, *chosen]
    chosen = {SELF_PLAY: ["--self-play"], CONTROL: ["--control"]}.get(side, [])
    return [sys.executable, "-m", "benchmarks.league.curve", game, *arguments, *chosen, "--clock", clock]


def measure(
    games: Sequence[str],
    seeds: int,
    seconds: float | None,
    folder: Path,
    peers: Sequence[str],
    jobs: int = 1,
    clock: str = "wall",
) -> dict[str, Any]:
    """Run all of them, `jobs` at a time, and say what came out; curves go to FOLDER/GAME.jsonl, anew each time.

    By the processor's `clock` peers do not run: theirs is the wall's.
    """
    folder.mkdir(parents=True, exist_ok=True)
    figures: dict[str, Any] = {"seeds": seeds, "jobs": jobs, "clock": clock, "seconds": {}}
    loads: dict[str, list[float]] = {}
    for game in games:
        limit = SECONDS[game] if seconds is None else seconds
        figures["seconds"][game] = limit
        out = curves_of(folder, game)
        out.unlink(missing_ok=True)
        sides = [side for side in SIDES[game] if side not in PEERS or (side in peers and clock == "wall")]
        runs = [(seed, side) for seed in range(1, seeds + 1) for side in sides]
        with ThreadPoolExecutor(jobs) as pool:
            curves = pool.map(partial(run, game, limit, folder, clock), *zip(*runs, strict=True))
            for (seed, side), lines in zip(runs, curves, strict=True):
                with out.open("a") as file:
                    file.writelines(json.dumps(line) + "\n" for line in lines)
                loads.setdefault(game, []).append(round(os.getloadavg()[0], 2))
                print(f"{game}, seed {seed}, {side}: {lines[-1]}", flush=True)
        figures |= summary(game, read(out))
    return {**figures, "load_after_each_run": loads}


def curves_of(folder: Path, game: str) -> Path:
    """Return the file of a game's curves."""
    return folder / f"{game}.jsonl"


def run(game: str, seconds: float, folder: Path, clock: str, seed: int, side: str) -> list[Line]:
    """Return the curve of one side of one seed, from a process that ends by itself."""
    out = folder / f"{game}.{side}.{seed}.part"
    out.unlink(missing_ok=True)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run(command(game, side, seed, seconds, out, clock), env=environment, check=True)
    lines = [{**line, "game": game, "side": side} for line in read(out)]
    out.unlink()
    return lines


def read(path: Path) -> list[Line]:
    """Return the lines of a file of curves, in order."""
    return [json.loads(line) for line in path.read_text().splitlines() if line]


def exploitability(line: Line) -> float:
    """Return a line's figure of its side: of a league's or a control's mixture, of self-play's policy, a peer's own."""
    names = {LEAGUE: "nash_mixture", CONTROL: "nash_mixture", SELF_PLAY: "main_agent"}
    return float(line[names.get(line["side"], "exploitability")])


def by_run(lines: Iterable[Line]) -> dict[tuple[str, int], list[Line]]:
    """(side, seed) -> its curve."""
    runs: dict[tuple[str, int], list[Line]] = {}
    for line in lines:
        runs.setdefault((line["side"], line["seed"]), []).append(line)
    return runs


def late(curve: Sequence[Line]) -> list[float]:
    """Exploitability over the second half of a curve's time."""
    half = curve[-1]["seconds"] / 2
    return [exploitability(line) for line in curve if line["seconds"] >= half]


def summary(game: str, lines: Sequence[Line]) -> dict[str, Any]:
    """Return medians over the seeds, and each seed's own figure.

    A league, its control and a peer are worth what they end with. Self-play goes round and may be anywhere when it
    stops: it is worth its median over the second half of its time.
    """
    runs = by_run(lines)
    short = {"spinning_top": "spinning"}.get(game, game)
    figures: dict[str, Any] = {}

    def add(name: str, of: str, worth: Any) -> None:
        values = [round(float(worth(curve)), 4) for (side, _), curve in sorted(runs.items()) if side == of]
        if values:
            figures[f"{short}_{name}"] = round(statistics.median(values), 4)
            figures[f"{short}_{name}_by_seed"] = values

    matrix = SELF_PLAY in SIDES[game]
    add("league" if matrix else "nash_mixture", LEAGUE, lambda curve: exploitability(curve[-1]))
    add("league_at_start" if matrix else "at_start", LEAGUE, lambda curve: exploitability(curve[0]))
    add("main_agent", LEAGUE, lambda curve: curve[-1]["main_agent"])
    add("control", CONTROL, lambda curve: exploitability(curve[-1]))
    add("control_main_agent", CONTROL, lambda curve: curve[-1]["main_agent"])
    add("selfplay", SELF_PLAY, lambda curve: statistics.median(late(curve)))
    add("selfplay_at_start", SELF_PLAY, lambda curve: exploitability(curve[0]))
    for peer in PEERS:
        add(peer, peer, lambda curve: exploitability(curve[-1]))
    return figures


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


def draw(path: Path, game: str, lines: Sequence[Line], goal: float | None = None) -> None:
    """Every seed's curve over the seconds of training, a colour a side, as a PNG."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator, NullFormatter

    figure = Figure(figsize=(7.5, 4.4), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    shown: set[str] = set()

    def curve(name: str, seconds: list[float], values: list[float], width: float) -> None:
        label = None if name in shown else LABELS[name]
        shown.add(name)
        axes.plot(seconds, values, color=COLORS[name], linewidth=width, alpha=0.8, label=label)

    for (side, _), points in sorted(by_run(lines).items(), key=lambda run: list(LABELS).index(run[0][0])):
        seconds = [point["seconds"] for point in points]
        if side == LEAGUE:
            curve("main_agent", seconds, [point["main_agent"] for point in points], 0.7)
        curve(side, seconds, [exploitability(point) for point in points], 1.5)
    if goal is not None:
        axes.axhline(goal, color="black", linestyle="--", linewidth=0.8, label=f"target: {goal:g}")
    seeds = len({line["seed"] for line in lines})
    axes.set(
        title=f"{TITLES[game]}, {seeds} seed{'s' if seeds > 1 else ''} each",
        xlabel="seconds of training",
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
