"""Decisions a second from which a league in one process learns, its evaluator included, with and without a compiler.

Each run is a process of one thread; both sides of a round run in turn. Seconds are the processor's.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import Any

import torch

from benchmarks.league.sides import LEAGUE, settings
from workers.leagues.local import LocalLeague

WARM_UP = 2  # rounds before the clock starts
NO_COMPILER = "no-compiler-here"
SIDES = ("compiled", "torch")  # torch: with numpy, without a compiler


def measure(games: Sequence[str], seconds: float, rounds: int) -> dict[str, Any]:
    """Return the median rates of `rounds` runs of `seconds` for each game and side, and the ratios of the sides."""
    figures: dict[str, Any] = {"seconds": seconds, "rounds": rounds}
    with tempfile.TemporaryDirectory(prefix="warren-bench-") as empty:
        missing = {"CC": NO_COMPILER, "WARREN_CACHE": empty}
        for game in games:
            rates: dict[str, list[float]] = {side: [] for side in SIDES}
            for _ in range(rounds):
                for side in SIDES:
                    rates[side].append(_in_a_process(game, seconds, missing if side == "torch" else {}))
                    print(f"{game}, {side}: {rates[side][-1]:,.0f} decisions a second", flush=True)
            for side in SIDES:
                figures[f"{game}_{side}"] = round(statistics.median(rates[side]))
            figures[f"{game}_ratio"] = round(figures[f"{game}_compiled"] / figures[f"{game}_torch"], 3)
    return figures | {"league_decisions_ratio": min(figures[f"{game}_ratio"] for game in games)}


def rate(game: str, seconds: float) -> float:
    """Let the league of conf/league learn for `seconds`; return the decisions of all its players a second."""
    league = LocalLeague(settings(game, 1, LEAGUE))
    for _ in range(WARM_UP):
        league.round()
    before, spent = _decisions(league), 0.0
    while spent < seconds:
        league.progress = min(1.0, spent / seconds)
        started = time.process_time()
        league.round()
        spent += time.process_time() - started
    return (_decisions(league) - before) / spent


def _decisions(league: LocalLeague) -> int:
    return sum(trainee.steps for trainee in league.trainees.values())


def _in_a_process(game: str, seconds: float, environment: dict[str, str]) -> float:
    command = [sys.executable, "-m", "benchmarks.league.decisions", game, str(seconds)]
    given = {**os.environ, **environment, "OMP_NUM_THREADS": "1"}
    return float(json.loads(subprocess.run(command, env=given, check=True, capture_output=True, text=True).stdout))


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(json.dumps(rate(sys.argv[1], float(sys.argv[2]))))
