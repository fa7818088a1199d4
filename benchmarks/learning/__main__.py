"""Does it learn? Warren's whole distributed job beside a peer, several seeds, curves as a picture.

`python -m benchmarks.learning NAME --peer [--seeds 5]`: environment steps until the mean return of the last training
episodes (env.goal_episodes; 100 unless an experiment sets it) reaches the goal, for Warren (launcher, learner, actors,
broker, Redis) and for a peer on the same environment, one seed after the other in turn. Names and their meaning:
`--list`, benchmarks/learning/comparisons.py. With `--folder` every run that ended is kept, with `--keep` its figures in
docs/curves, and the same command continues after those; `--peer` may be added then.

The last line is one JSON object: solved (of the seeds), steps_vs_peer, p, every run, and the machine's load.
steps_vs_peer is the ratio of the medians (below 1: fewer steps than the peer); a run that did not reach the goal counts
as its limit. p is how often chance sets the two as far apart (benchmarks/learning/mann_whitney.py).
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.apparatus.curves import Curve, draw
from benchmarks.apparatus.points import Points
from benchmarks.apparatus.report import finish
from benchmarks.apparatus.seeds import EVERY_CHECKPOINT, composed, evaluated, train
from benchmarks.learning.comparisons import COMPARISONS, Comparison
from benchmarks.learning.mann_whitney import p_value
from benchmarks.learning.peers import Run, run_peer
from warren.errors import unknown_name
from workers import servers
from workers.config.schema import from_yaml

DOCS = Path(__file__).resolve().parents[2] / "docs"
PICTURES, KEPT = DOCS / "images", DOCS / "curves"
CURVE_POINTS = 30  # points of a curve that is kept
# Leagues, clones and teams, which are not measured beside a peer: the module that measures each, and a description.
LEAGUES = {
    "connect-four": (
        "benchmarks.learning.connect_four",
        "Connect Four, masked PPO by self-play, against a random and a one-ply player and OpenSpiel's tree search",
    ),
    "cloning": ("benchmarks.learning.cloning", "CartPole-v1, behaviour cloning of a player from 200 of its games"),
    "slimevolley": ("benchmarks.learning.slimevolley", "slime volleyball, a league, against the built-in player"),
    "fightingice": ("benchmarks.learning.fightingice", "FightingICE, a league, against its own first snapshot"),
    "simple-spread": ("benchmarks.learning.teams", "three agents that learn together: IPPO, MAPPO, VDN and QMIX"),
    "simple-speaker-listener": ("benchmarks.learning.teams", "a speaker and a listener: IPPO, MAPPO and QMIX"),
}
SEEDS_OF_A_PICTURE = 3  # fewer show little, and replace no picture


@dataclass
class Side:
    """One of the two sides that are compared, with its runs so far."""

    title: str
    limit: int
    runs: list[dict[str, Any]] = field(default_factory=list)
    curves: list[Curve] = field(default_factory=list)

    def add(self, steps: int | None, seconds: float, curve: Curve) -> None:
        best = max((point[1] for point in curve), default=None)
        self.runs.append(
            {"steps": steps, "seconds": round(seconds, 1), "best": None if best is None else round(best, 1)}
        )
        self.curves.append(curve)
        reached = "goal not reached" if steps is None else f"{steps:,} steps"
        print(f"seed {len(self.runs)}: {self.title}: {self.runs[-1]} ({reached})", flush=True)

    @property
    def solved(self) -> int:
        return sum(run["steps"] is not None for run in self.runs)

    @property
    def steps(self) -> list[int]:
        """Return the steps of each run; a run that did not reach the goal counts as its limit."""
        return [run["steps"] or self.limit for run in self.runs]

    @property
    def median(self) -> float:
        return statistics.median(self.steps)


class Measurement:
    """Runs both sides of a comparison, seed by seed in turn, so that other load of the machine falls on both."""

    def __init__(self, name: str, folder: Path, environment: dict[str, str], points: Points) -> None:
        """`folder`: that of Warren's runs; `points`: the runs of either side that ended, each with its curve."""
        self.name, self.comparison = name, COMPARISONS[name]
        self.folder, self.environment, self.points = folder, environment, points
        self.teacher = ""

    def add(self, side: Side, settings: Sequence[str], seed: int, run: Callable[[], Run]) -> None:
        """Add to `side` its run with these settings: one kept from before, or one made now by `run`."""
        key = {"side": side.title, "settings": list(settings), "seed": seed}
        point = self.points.get(**key)
        if point is None:
            steps, seconds, curve = run()
            thin = thinned([(at, round(mean, 2)) for at, mean in curve])
            point = self.points.add({"steps": steps, "seconds": round(seconds, 1), "curve": thin}, **key)
        side.add(point["steps"], point["seconds"], point["curve"])

    def warren(self, side: Side, overrides: Sequence[str], seed: int) -> Run:
        trial = self._unused(f"{len(side.title)}-{seed}-{side.title[:8].strip().replace(' ', '-')}")
        given = [one.format(teacher=self.teacher) if "{teacher}" in one else one for one in overrides]
        patience = 60 * self.comparison.minutes
        given += EVERY_CHECKPOINT if self.comparison.evaluated else ()
        outcome, curve = train(self.folder, trial, [*given, f"seed={seed}"], self.environment, patience)
        steps = outcome["steps"] if outcome["state"] == "solved" else None
        if self.comparison.evaluated:
            run = self.folder / "learning" / trial
            goal = from_yaml(run / "config.yaml").env.goal
            assert goal is not None
            curve = evaluated(run, goal)
            steps = curve[-1][0] if curve[-1][1] >= goal else None
        return steps, outcome["seconds"], curve

    def _unused(self, trial: str) -> str:
        """Return a name that no run in the folder has; a run that was cut short keeps its own."""
        names = itertools.chain([trial], (f"{trial}-{number}" for number in itertools.count(2)))
        return next(name for name in names if not (self.folder / "learning" / name).exists())

    def _teach(self) -> None:
        """Train the teacher, or take the one that was kept."""
        key = {"side": "teacher", "settings": list(self.comparison.teacher)}
        if (trial := self.points.get(**key)) is None:
            print("the teacher", flush=True)
            trial, patience = self._unused("teacher"), 60 * self.comparison.minutes
            train(self.folder, trial, [*self.comparison.teacher, "seed=1000"], self.environment, patience)
            self.points.add(trial, **key)
        self.teacher = str(self.folder / "learning" / trial)

    def measure(self, seeds: int, with_peer: bool) -> tuple[Side, Side | None]:
        comparison = self.comparison
        ours, theirs = self._sides(with_peer)
        if comparison.teacher:
            self._teach()
        for seed in range(1, seeds + 1):
            self.add(ours, comparison.overrides, seed, partial(self.warren, ours, comparison.overrides, seed))
            if theirs is not None and comparison.without:
                self.add(theirs, comparison.without, seed, partial(self.warren, theirs, comparison.without, seed))
            elif theirs is not None and comparison.peer is not None:
                of_peer = comparison.of_peer
                self.add(theirs, of_peer, seed, partial(run_peer, comparison.peer, composed(of_peer), seed))
        return ours, theirs

    def _sides(self, with_peer: bool) -> tuple[Side, Side | None]:
        comparison = self.comparison
        limit = composed([one for one in comparison.overrides if "{teacher}" not in one]).total_steps
        if comparison.without:
            ours, theirs = comparison.sides
            return Side(ours, limit), Side(theirs, composed(comparison.without).total_steps)
        if not with_peer or comparison.peer is None:
            return Side("Warren", limit), None
        if missing := comparison.peer.missing():
            print(f"left out: {missing}", flush=True)
            return Side("Warren", limit), None
        return Side("Warren", limit), Side(comparison.peer.title, composed(comparison.of_peer).total_steps)


def thinned(curve: Curve) -> Curve:
    """Return at most about CURVE_POINTS of a curve, including the last and the best."""
    every = max(1, len(curve) // CURVE_POINTS)
    best = max((mean for _, mean in curve), default=0.0)
    at = {*range(len(curve) - 1, -1, -every), next((n for n, (_, mean) in enumerate(curve) if mean == best), 0)}
    return [curve[n] for n in sorted(at) if n < len(curve)]


def figures(comparison: Comparison, ours: Side, theirs: Side | None, goal: float) -> dict[str, Any]:
    """Return the figures of the last line."""
    sides = [ours] if theirs is None else [ours, theirs]
    return {
        "solved": ours.solved,
        "seeds": len(ours.runs),
        "steps_vs_peer": None if theirs is None else round(ours.median / theirs.median, 3),
        "p": None if theirs is None else round(p_value(ours.steps, theirs.steps), 3),
        "goal": goal,
        "limit": ours.limit,
        "median_steps": {side.title: side.median for side in sides},
        "solved_by": {side.title: side.solved for side in sides},
        "peer": None if theirs is None or comparison.peer is None else comparison.peer.source,
        "note": comparison.note,
        "runs": {side.title: side.runs for side in sides},
    }


def compare(name: str, options: argparse.Namespace) -> None:
    """Measure one name, draw its curves, print its figures."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        league = importlib.import_module(LEAGUES[name][0]) if name in LEAGUES else None  # imports the game
        if league is not None and options.run is not None:
            league.measure(folder, {}, options)
            return
        with servers.acquire(options.broker, folder=folder / "servers", say=lambda line: print(line)) as found:
            if league is not None:
                league.measure(folder, found.environment(), options)
                return
            points = Points(KEPT if options.keep else options.folder, f"learning_{name}")
            ours, theirs = Measurement(name, folder, found.environment(), points).measure(options.seeds, options.peer)
    comparison = COMPARISONS[name]
    env = composed([one for one in comparison.overrides if "{teacher}" not in one]).env
    assert env.goal is not None
    if options.picture or (options.seeds >= SEEDS_OF_A_PICTURE and not options.no_picture):
        picture = options.picture or PICTURES / f"learning_{name.replace('-', '_')}.png"
        curves = {side.title: side.curves for side in (ours, theirs) if side is not None}
        training = f"the last {env.goal_episodes} training episodes"
        of = "20 episodes of each version" if comparison.evaluated else training
        draw(picture, comparison.title, curves, env.goal, f"mean return of {of}")
    finish(f"learning {name}", figures(comparison, ours, theirs, env.goal))


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", nargs="?", help="a comparison, as --list shows them")
    parser.add_argument("--list", action="store_true", help="show the comparisons and end")
    parser.add_argument("--peer", action="store_true", help="run the peer beside, seed by seed in turn")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--broker", choices=servers.MODES, default="auto")
    parser.add_argument("--picture", type=Path, help="write the curves there; default: docs/images, from 3 seeds on")
    parser.add_argument("--no-picture", action="store_true")
    parser.add_argument("--folder", type=Path, help="keep the runs there, and go on after those that ended")
    parser.add_argument("--keep", action="store_true", help="keep figures in docs/curves, and go on after those")
    parser.add_argument("--run", type=Path, help="a run folder: of a league that was trained already, only its games")
    options = parser.parse_args()
    if options.list or options.name is None:
        for name, comparison in COMPARISONS.items():
            print(f"{name:<28} {comparison.title}{f' ({comparison.note})' if comparison.note else ''}")
        for name, (_, title) in LEAGUES.items():
            print(f"{name:<28} {title}")
        return
    name = options.name.replace("_", "-")
    if name not in (known := [*COMPARISONS, *LEAGUES]):
        sys.exit(f"error: {unknown_name('comparison', name, known, '(--list shows them)')}")
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    compare(name, options)


if __name__ == "__main__":
    main()
