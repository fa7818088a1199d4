"""A league through RabbitMQ and Redis beside the same league in one process, after as many decisions of all players.

Both are trained anew with each seed; exploitability of their Nash mixtures and of their main agents is exact. The
distributed one is `python -m workers.train experiment=GAME` with servers of its own. The two count as equal if Welch's
test finds no difference between the means. The decisions of the main agents are shown as well: a short run ends before
the players' shares of the learning even out.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from scipy import stats

from benchmarks.league.curve import Meter
from benchmarks.league.sides import LEAGUE, settings
from envs import exploitability
from workers.evaluation.saved_sides import SavedSide, league_in, mixture_of, player_of
from workers.evaluation.scores import read_scores, table
from workers.leagues.local import LocalLeague
from workers.runtime.trained import run_in

MEASURES = ("nash_mixture", "main_agent")
MADE = "main_decisions"
Ends = dict[str, float]  # exploitability by measure, and the main agent's decisions


def measure(game: str, seeds: int, decisions: int, folder: Path, say: Callable[[str], None] = print) -> dict[str, Any]:
    """Train both `seeds` times for `decisions`, in `folder`; return their exploitabilities and how they differ."""
    sides: dict[str, list[Ends]] = {"distributed": [], "local": []}
    for seed in range(1, seeds + 1):
        for side, train in (("distributed", distributed), ("local", local)):
            sides[side].append(train(game, seed, decisions, folder))
            say(f"{game}, seed {seed}, {side}: {sides[side][-1]}")
    return {"game": game, "decisions": decisions, **dict(_figures(sides))}


def distributed(game: str, seed: int, decisions: int, folder: Path) -> Ends:
    """Return the exploitabilities at the end of a run of the whole system."""
    trial = f"seed-{seed}"
    command = [
        *(sys.executable, "-m", "workers.train", f"experiment={game}", f"folder={folder}", f"trial={trial}"),
        *(f"seed={seed}", f"total_steps={decisions}", "seconds=null", "league.goal=null", "broker=private"),
    ]
    log = folder / f"{trial}.log"
    with log.open("w") as file:
        status = subprocess.run(command, stdout=file, stderr=subprocess.STDOUT, check=False).returncode
    if status:
        raise SystemExit(f"error: {' '.join(command)} ended with status {status}; see {log}")
    found, config = league_in(run_in(folder / game / trial))
    form = exploitability.load(config.env, **config.env_kwargs)

    def of(side: SavedSide) -> float:
        tables = [table(form, policy) for policy in side.policies]
        return round(exploitability.of(form, exploitability.mixture(form, tables, side.shares)), 5)

    exact = of(mixture_of(found, config)), of(player_of(found, "main"))
    return {**dict(zip(MEASURES, exact, strict=True)), MADE: read_scores(found)[-1]["steps"]["main"]}


def local(game: str, seed: int, decisions: int, folder: Path) -> Ends:
    """Return the exploitabilities of a league in this process after its last evaluation; `folder` is not used."""
    league = LocalLeague(settings(game, seed, LEAGUE))

    def made() -> int:
        return sum(trainee.steps for trainee in league.trainees.values())

    while made() < decisions:
        league.progress = made() / decisions
        league.round(1)  # a whole round of Kuhn's players is a sixth of a million decisions
    line = Meter(league).read(last=True)
    return {**{name: round(float(line[name] or 0.0), 5) for name in MEASURES}, MADE: league.trainees["main"].steps}


def _figures(sides: dict[str, list[Ends]]) -> Iterator[tuple[str, Any]]:
    for name in (*MEASURES, MADE):
        values: dict[str, Sequence[float]] = {side: [ends[name] for ends in found] for side, found in sides.items()}
        for side, found in values.items():
            yield f"{side}_{name}", round(statistics.median(found), 5)
            yield f"{side}_{name}_by_seed", found
        if name in MEASURES and len(values["local"]) > 1:
            test = stats.ttest_ind(values["distributed"], values["local"], equal_var=False)
            yield f"{name}_p", round(float(test.pvalue), 4)
