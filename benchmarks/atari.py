"""Atari games from the screen beside published curves: PPO's runs, a table of docs/learning.md, and a picture.

python -m benchmarks.atari run breakout qbert --seeds 1       # trains what is not kept yet, one game after the other
python -m benchmarks.atari run breakout qbert --at-once 2 --set actors=4 --set device=cuda
python -m benchmarks.atari table                              # writes the table and the picture anew

A run is `python -m workers.train experiment=atari env.id=atari:GAME`; a line of docs/curves/atari.jsonl keeps it. Its
figures are, like the published ones of docs/curves/atari_published.json, means over the training games that ended
within each million frames (250,000 steps), whole games by the game's own points.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import takewhile
from pathlib import Path
from threading import Lock
from typing import Any

import warren
from benchmarks.apparatus.curves import COLORS
from benchmarks.zoo import kept, written
from warren.errors import unknown_name
from warren.files import write_whole

DOCS = Path(__file__).resolve().parents[1] / "docs"
RESULTS, PUBLISHED = DOCS / "curves" / "atari.jsonl", DOCS / "curves" / "atari_published.json"
PAGE, PICTURE = DOCS / "learning.md", DOCS / "images" / "learning_atari.png"
BEGIN = "<!-- by python -m benchmarks.atari table -->\n"
SETTINGS = ("experiment=atari", "env.goal=null")
STEPS_A_MILLION = 250_000  # steps of four frames
PEERS = ("DQN", "Rainbow", "IQN")
WRITING = Lock()

Run = dict[str, Any]


def published() -> dict[str, dict[str, list[float]]]:
    """Return the published mean returns of each million frames, by game and by algorithm."""
    found: dict[str, dict[str, list[float]]] = json.loads(PUBLISHED.read_text())["games"]
    return found


def made(game: str, seed: int, words: Sequence[str], folder: str) -> Run:
    """Train one game with one seed, and return the line to keep."""
    overrides = (*SETTINGS, f"env.id=atari:{game}", *words)
    result = warren.train(*overrides, seed=seed, folder=folder, trial=f"{game}-{seed}", quiet=True)
    points = result.metrics
    return {
        "game": game,
        "seed": seed,
        "settings": list(words),
        "steps": result.outcome["steps"],
        "seconds": round(float(points[-1]["training_seconds"]), 1),
        "curve": by_millions(points),
    }


def by_millions(points: Iterable[Mapping[str, Any]]) -> list[float]:
    """Return the mean return of the games that ended in each whole million frames of a run.

    Each point of metrics.jsonl has the count of games so far and the mean over the last ones, at most its `window`.
    """
    parts: list[list[tuple[float, int]]] = []
    known, last = 0, 0
    for point in points:
        last, ended = point["steps"], point["episodes"]
        part = (last - 1) // STEPS_A_MILLION
        parts += [[] for _ in range(part + 1 - len(parts))]
        if ended > known:
            parts[part].append((point["mean_return"], ended - known))
            known = ended
    whole = parts[: last // STEPS_A_MILLION]
    played = takewhile(bool, whole)  # figures stand in order, so that none can follow a million in which no game ended
    return [round(statistics.fmean([mean for mean, _ in one], [n for _, n in one]), 2) for one in played]


def run(games: Sequence[str], seeds: int, at_once: int, words: Sequence[str], path: Path = RESULTS) -> None:
    """Train each game with seeds 1 to `seeds`, except for kept runs, and keep each once it has ended."""
    have = {(one["game"], one["seed"]) for one in kept(path)}
    wanted = [(game, seed) for seed in range(1, seeds + 1) for game in games if (game, seed) not in have]
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(at_once) as threads:
        for line in threads.map(partial(_kept, words=words, folder=folder, path=path), wanted):
            print(f"{line['game']}, seed {line['seed']}: {line['curve']} in {line['seconds']:g} s", flush=True)


def _kept(which: tuple[str, int], words: Sequence[str], folder: str, path: Path) -> Run:
    line = made(*which, words, folder)
    with WRITING, path.open("a") as file:
        file.write(json.dumps(line) + "\n")
    return line


def table(runs: Sequence[Run]) -> str:
    """Return the table of some runs in Markdown: a row per game, at the frames that all its runs have."""
    header = "| game | million frames | seeds | hours | PPO | " + " | ".join(PEERS) + " |\n"
    return header + "|---" * (5 + len(PEERS)) + "|\n" + "".join(_rows(runs))


def _rows(runs: Sequence[Run]) -> Iterator[str]:
    of_peers = published()
    for game in sorted({one["game"] for one in runs}):
        mine = [one for one in runs if one["game"] == game]
        millions = min(len(one["curve"]) for one in mine)
        hours = statistics.median(one["seconds"] for one in mine) / 3600
        figures = [statistics.fmean(one["curve"][millions - 1] for one in mine)]
        figures += [of_peers[game][name][millions - 1] for name in PEERS]
        shown = " | ".join(f"{figure:,.1f}" for figure in figures)
        yield f"| `{game}` | {millions} | {len(mine)} | {hours:.2f} | {shown} |\n"


def draw(runs: Sequence[Run], path: Path) -> None:
    """Write the curves of all games, with the published ones, to `path` as a PNG."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # no window system, no global state
    from matplotlib.figure import Figure

    games, of_peers = sorted({one["game"] for one in runs}), published()
    figure = Figure(figsize=(4 * len(games), 3.6), dpi=100, layout="constrained")
    FigureCanvasAgg(figure)
    for axes, game in zip(figure.subplots(1, len(games), squeeze=False)[0], games, strict=True):
        mine = [one["curve"] for one in runs if one["game"] == game]
        most = max(len(curve) for curve in mine)
        sides = {"PPO (Warren)": mine, **{name: [of_peers[game][name][:most]] for name in PEERS}}
        for color, (name, curves) in zip(COLORS, sides.items(), strict=False):
            for number, curve in enumerate(curves):
                axes.plot(range(1, len(curve) + 1), curve, color=color, marker=".", label=None if number else name)
        axes.set(title=game, xlabel="million frames", ylabel="mean return of the games ended")
        axes.grid(alpha=0.3)
    figure.axes[0].legend(loc="best")
    figure.savefig(path)


def main() -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    runs = commands.add_parser("run", help="train games and keep their curves")
    runs.add_argument("games", nargs="+", metavar="GAME")
    runs.add_argument("--seeds", type=int, default=1, help="default: 1")
    runs.add_argument("--at-once", type=int, default=1, help="runs at a time, each with servers of its own")
    runs.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="settings of the runs")
    runs.add_argument("--results", type=Path, default=RESULTS, help="where runs are kept; default: docs/curves")
    commands.add_parser("table", help=f"write the table into {PAGE.name}, and the picture")
    given = parser.parse_args()
    if given.command == "table":
        write_whole(PAGE, written(PAGE.read_text(encoding="utf-8"), table(kept(RESULTS)), BEGIN))
        draw(kept(RESULTS), PICTURE)
        return 0
    known = sorted(published())
    if unknown := [name for name in given.games if name not in known]:
        print(*(f"error: {unknown_name('game', name, known)}" for name in unknown), sep="\n", file=sys.stderr)
        return 2
    run(given.games, given.seeds, given.at_once, given.set, given.results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
