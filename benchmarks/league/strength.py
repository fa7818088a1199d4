"""A league's strength: exploitability of its Nash mixture and of its main agent, beside its control and other sides.

The control is one player with the main agent's settings that plays itself, scored by the mixture of its own snapshots
with the same evaluator; benchmarks/league/sides.py has the other sides and the games. Leduc poker is also measured
beside OpenSpiel's NFSP and PSRO. Every run is a process with one thread at the lowest priority. `jobs` of them run at a
time, seed by seed in turn, so that other load of the machine falls on all alike. All train for the same time, or with
the clock `decisions` for as many decisions of the main agent. Whole runs stay in FOLDER/GAME.jsonl: after an
interruption the same command makes the missing ones.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.league.figures import PEERS, Line, read, summary
from benchmarks.league.sides import CONTROL, GAMES, HELD_OUT, LEAGUE, SELF_PLAY, twin

SECONDS = {"rps": 20.0, "spinning_top": 45.0, "kuhn": 240.0, "leduc": 240.0}  # s of training, each side and seed
SECONDS |= dict.fromkeys(HELD_OUT, 240.0)
DECISIONS = {"rps": 500_000, "spinning_top": 500_000, "kuhn": 2_000_000, "leduc": 4_000_000}  # the main agent's
DECISIONS |= dict.fromkeys(HELD_OUT, 2_000_000)
POINTS = 40  # points of a curve, at most; fewer if an exact figure takes seconds
RESPOND = 500_000  # decisions of best responses to the mixture, if exploitability is not exact
SEARCH = 100  # games of Connect Four against a tree search
DECIDED = "decisions"  # the clock that counts the main agent's decisions
LOWEST = ("nice", "-n", "19")
SIDES: dict[str, tuple[str, ...]] = dict.fromkeys(GAMES, (LEAGUE, CONTROL))
SIDES |= dict.fromkeys(("rps", "spinning_top"), (LEAGUE, CONTROL, SELF_PLAY))
SIDES["leduc"] = (LEAGUE, CONTROL, *PEERS)


@dataclass(frozen=True)
class Plan:
    """The runs to make: of `sides`, or of those of each game, with seeds from `first_seed` on."""

    games: Sequence[str]
    seeds: int
    folder: Path
    seconds: float | None = None  # or decisions, by the clock; None: the game's default
    sides: Sequence[str] | None = None
    peers: Sequence[str] = ()
    clock: str = "wall"
    first_seed: int = 1
    jobs: int = 1
    cores: Sequence[int] = ()  # cores to which runs are bound, in turn
    respond: int = RESPOND
    points: int = POINTS
    search: int = SEARCH

    def budget(self, game: str) -> float:
        """Return the seconds, or the main agent's decisions, of each run."""
        default = DECISIONS if self.clock == DECIDED else SECONDS
        return default[game] if self.seconds is None else self.seconds

    def sides_of(self, game: str) -> list[str]:
        """Return the sides to run; peers, whose clock is wall time, only if asked for."""
        asked = [side for side in SIDES[game] if side not in PEERS] if self.sides is None else [*self.sides]
        return [*asked, *(side for side in SIDES[game] if side in self.peers and self.clock == "wall")]

    def runs(self, game: str) -> Iterator[tuple[int, str]]:
        """Yield (seed, side) of every run."""
        for seed in range(self.first_seed, self.first_seed + self.seeds):
            for side in self.sides_of(game):
                yield seed, side


def problems(plan: Plan) -> list[str]:
    """Return why sides of `plan` cannot run."""
    return [
        f"side {side} of {game}: the same league as side {other}, whose parts the game's settings have; leave it out"
        for game in plan.games
        for side in plan.sides or ()
        if (other := twin(game, side)) is not None
    ]


def command(plan: Plan, game: str, seed: int, side: str, out: Path, core: int | None = None) -> list[str]:
    """Return the command that runs one side of one seed and adds its curve's lines to `out`."""
    budget = plan.budget(game)
    arguments = ["--seed", str(seed), "--every", str(budget / plan.points), "--out", str(out)]
    if side in PEERS:
        peer, _, meta_strategy = side.partition("_")
        chosen = ["--meta-strategy", meta_strategy] if meta_strategy else []
        seconds = ["--seconds", str(budget)]
        return [*LOWEST, sys.executable, "-m", "benchmarks.league.leduc_peers", peer, *seconds, *arguments, *chosen]
    spent = "--decisions" if plan.clock == DECIDED else "--seconds"
    arguments += [spent, str(budget), "--clock", "processor" if plan.clock == DECIDED else plan.clock]
    arguments += ["--respond", str(plan.respond), "--search", str(plan.search)]
    arguments += ["--side", side, "--keep", str(kept_in(plan.folder, game, side, seed))]
    arguments += [] if core is None else ["--core", str(core)]
    return [*LOWEST, sys.executable, "-m", "benchmarks.league.curve", game, *arguments]


def measure(plan: Plan) -> dict[str, Any]:
    """Make the missing runs and return the figures of all runs."""
    plan.folder.mkdir(parents=True, exist_ok=True)
    figures: dict[str, Any] = {"seeds": plan.seeds, "jobs": plan.jobs, "clock": plan.clock, "budget": {}}
    loads: dict[str, list[float]] = {}
    for game in plan.games:
        figures["budget"][game] = plan.budget(game)
        out = curves_of(plan.folder, game)
        missing = [one for one in plan.runs(game) if one not in made(plan, game)]
        with ThreadPoolExecutor(plan.jobs) as pool:
            curves = pool.map(partial(run, plan, game), range(len(missing)), missing)
            for (seed, side), lines in zip(missing, curves, strict=True):
                with out.open("a") as file:
                    file.writelines(json.dumps(line) + "\n" for line in lines)
                loads.setdefault(game, []).append(round(os.getloadavg()[0], 2))
                print(f"{game}, seed {seed}, {side}: {lines[-1]}", flush=True)
        compare(plan, game)
        figures |= summary(game, chosen(plan, game))
    return {**figures, "load_after_each_run": loads}


def chosen(plan: Plan, game: str) -> list[Line]:
    """Return the lines of the file that belong to runs of `plan`."""
    runs, budget = set(plan.runs(game)), plan.budget(game)
    return [
        line
        for line in read(curves_of(plan.folder, game))
        if (line["seed"], line["side"]) in runs and (line.get("clock"), line.get("budget")) == (plan.clock, budget)
    ]


def made(plan: Plan, game: str) -> set[tuple[int, str]]:
    """Return (seed, side) of the runs of `plan` that the file holds; each was written whole."""
    return {(line["seed"], line["side"]) for line in chosen(plan, game)}


def compare(plan: Plan, game: str) -> None:
    """Add the league's relative performance against the control of the same seed, if it is missing."""
    known = {line["seed"] for line in chosen(plan, game) if "relative_performance" in line}
    both = [seed for seed, side in made(plan, game) if side == LEAGUE and (seed, CONTROL) in made(plan, game)]
    for seed in sorted(set(both) - known):
        one, other = (kept_in(plan.folder, game, side, seed) for side in (LEAGUE, CONTROL))
        if not (one.is_dir() and other.is_dir()):
            continue  # its models were removed
        from benchmarks.league.meeting import relative_performance

        line = {"game": game, "side": LEAGUE, "seed": seed, "clock": plan.clock, "budget": plan.budget(game)}
        line["relative_performance"] = relative_performance(game, one, other)
        with curves_of(plan.folder, game).open("a") as file:
            file.write(json.dumps(line) + "\n")


def curves_of(folder: Path, game: str) -> Path:
    """Return the file of a game's curves."""
    return folder / f"{game}.jsonl"


def kept_in(folder: Path, game: str, side: str, seed: int) -> Path:
    """Return the folder of the models with which a run ended."""
    return folder / "models" / f"{game}.{side}.{seed}"


def run(plan: Plan, game: str, number: int, which: tuple[int, str]) -> list[Line]:
    """Return the curve of one side of one seed, from a process that ends by itself."""
    seed, side = which
    out = plan.folder / f"{game}.{side}.{seed}.part"
    out.unlink(missing_ok=True)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    core = plan.cores[number % len(plan.cores)] if plan.cores else None
    subprocess.run(command(plan, game, seed, side, out, core), env=environment, check=True)
    labels = {"game": game, "side": side, "clock": plan.clock, "budget": plan.budget(game)}
    lines = [{**line, **labels} for line in read(out)]
    out.unlink()
    return lines
