"""The zoo: experiments of conf/experiment and the results of their runs, in two tables of docs/algorithms.md.

python -m benchmarks.zoo run cartpole cartpole_a2c --seeds 3    # trains what is not kept yet, seed by seed in turn
python -m benchmarks.zoo table                                  # writes the tables anew from the kept runs

A run is kept as one line of docs/curves/zoo.jsonl, with its curve in few points; to replace a run of another version of
Warren, remove its line. Steps do not depend on the machine's load; seconds do, and are not in the tables.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import warren
from warren.errors import unknown_name
from warren.files import write_whole
from workers.config.schema import CONF, from_yaml

ROOT = Path(__file__).resolve().parents[1]
RESULTS, PAGE = ROOT / "docs" / "curves" / "zoo.jsonl", ROOT / "docs" / "algorithms.md"
BEGIN, END = "<!-- by python -m benchmarks.zoo table -->\n", "<!-- to here -->\n"
HEADER = """\
| `experiment=` | environment, algorithm | goal | solved | steps to the goal | return at the end |
|---|---|---|---|---|---|
"""
EPISODES = 20  # of the evaluation of a run's last weights
NEVER = 10**12  # steps between evaluations: only the last weights are evaluated
CURVE_POINTS = 20

Run = dict[str, Any]


def kept(path: Path = RESULTS) -> list[Run]:
    """Return the runs that were kept."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def made(name: str, seed: int, words: Sequence[str], folder: str) -> Run:
    """Train one experiment with one seed, and return the line to keep."""
    evaluation = {"every": NEVER, "episodes": EPISODES}
    result = warren.train(f"experiment={name}", *words, seed=seed, folder=folder, evaluation=evaluation, quiet=True)
    config, points = from_yaml(result.folder / "config.yaml"), result.metrics
    curve = [(point["steps"], point["mean_return"]) for point in points if point["mean_return"] is not None]
    every = max(1, len(curve) // CURVE_POINTS)
    return {
        "experiment": name,
        "seed": seed,
        "environment": config.env.id,
        "algorithm": config.algorithm["name"],
        "goal": config.env.goal,
        "limit": config.total_steps,
        "steps": result.outcome["steps"] if result.state == "solved" else None,
        "evaluation": round(result.evaluations[-1]["mean_return"], 2),
        "seconds": round(float(result.outcome["seconds"]), 1),
        "curve": [(steps, round(mean, 1)) for steps, mean in curve[every - 1 :: every]],
    }


def run(names: Sequence[str], seeds: int, words: Sequence[str], path: Path = RESULTS) -> None:
    """Train each experiment with seeds 1 to `seeds`, except for kept runs, and keep each once it has ended."""
    have = {(one["experiment"], one["seed"]) for one in kept(path)}
    for seed in range(1, seeds + 1):
        for name in names:
            if (name, seed) in have:
                continue
            with tempfile.TemporaryDirectory() as folder:
                line = made(name, seed, words, folder)
            with path.open("a") as file:
                file.write(json.dumps(line) + "\n")
            print(f"{name}, seed {seed}: {_steps(line['steps'])} steps, {line['evaluation']:g} at the end", flush=True)


def table(runs: Iterable[Run]) -> str:
    """Return the table of some runs in Markdown: a row per experiment; a run that missed the goal counts its limit."""
    return HEADER + "".join(_rows(list(runs)))


def by_game(runs: Iterable[Run]) -> str:
    """Return a table of algorithms by environments with a goal: the best experiment's median steps to it."""
    found: dict[tuple[str, str], list[Run]] = {}
    for one in runs:
        found.setdefault((one["algorithm"], f"`{one['environment']}` ({one['goal']:g})"), []).append(one)
    games = sorted({game for _, game in found})
    lines = [f"| | {' | '.join(games)} |", "|---" * (len(games) + 1) + "|"]
    for algorithm in sorted({algorithm for algorithm, _ in found}):
        cells = [_best(found.get((algorithm, game), [])) for game in games]
        lines.append(f"| `{algorithm}` | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _best(runs: Sequence[Run]) -> str:
    """Return the least median steps to the goal of the experiments in `runs`."""
    medians = [
        _median([one for one in runs if one["experiment"] == name]) for name in {one["experiment"] for one in runs}
    ]
    reached = [steps for steps in medians if steps is not None]
    return f"{min(reached):,}" if reached else "missed" if runs else ""


def _median(runs: Sequence[Run]) -> int | None:
    """Return the median steps to the goal of one experiment's runs; None if most of them missed it."""
    reached = sorted(one["steps"] for one in runs if one["steps"] is not None)
    middle = (len(runs) - 1) // 2  # the lower median, where those that missed come last
    return reached[middle] if middle < len(reached) else None


def tables(runs: Sequence[Run]) -> str:
    """Return both tables: of algorithms by environments, and of experiments."""
    return f"{by_game(runs)}\n{table(runs)}"


def _rows(runs: Sequence[Run]) -> Iterator[str]:
    for name in sorted({one["experiment"] for one in runs}):
        mine = [one for one in runs if one["experiment"] == name]
        first, solved = mine[0], [one["steps"] for one in mine if one["steps"] is not None]
        median = statistics.median_low([one["steps"] or one["limit"] for one in mine])
        spread = f"{_steps(median)} ({_steps(min(solved))} to {_steps(max(solved))})" if solved else "-"
        end = statistics.median([one["evaluation"] for one in mine])
        about = f"{first['environment']}, {first['algorithm']}"
        yield f"| `{name}` | {about} | {first['goal']:g} | {len(solved)} of {len(mine)} | {spread} | {end:g} |\n"


def _steps(steps: int | None) -> str:
    return "no" if steps is None else f"{steps:,}"


def written(text: str, made: str, begin: str = BEGIN, end: str = END) -> str:
    """Return a page's text with the table `made` between two marks."""
    before, _, rest = text.partition(begin)
    _, _, after = rest.partition(end)
    return f"{before}{begin}\n{made}\n{end}{after}"


def main() -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    runs = commands.add_parser("run", help="train experiments and keep what they came to")
    runs.add_argument("names", nargs="+", metavar="EXPERIMENT")
    runs.add_argument("--seeds", type=int, default=3, help="default: 3")
    runs.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="servers, say: broker=embedded")
    commands.add_parser("table", help=f"write the tables into {PAGE.relative_to(ROOT)}")
    given = parser.parse_args()
    if given.command == "table":
        write_whole(PAGE, written(PAGE.read_text(encoding="utf-8"), tables(kept())))
        return 0
    known = sorted(path.stem for path in CONF.glob("experiment/*.yaml"))
    if unknown := [name for name in given.names if name not in known]:
        print(*(f"error: {unknown_name('experiment', name, known)}" for name in unknown), sep="\n", file=sys.stderr)
        return 2
    run(given.names, given.seeds, given.set)
    return 0


if __name__ == "__main__":
    sys.exit(main())
