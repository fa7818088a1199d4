"""A league of Nim whose games drive themselves, as a user starts it: the run, and the example's game process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any, Self

import numpy as np

from league.redis.store import Store
from support.league_run import LeagueOfRun
from support.training_run import TrainingRun

EXAMPLE = Path(__file__).parents[2] / "examples" / "gamecore" / "nim.py"
# Small numbers: many matches and periods in a few seconds.
SMALL = (
    "experiment=nim_gamecore",
    "league.lanes=32",
    "league.match_games=8",
    "league.period_steps=2000",
    "league.algorithm.minibatch_size=64",
    "league.players.main.config={checkpoint_min_steps: 2000, checkpoint_max_steps: 4000}",
    "league.players.main_exploiter.config={checkpoint_min_steps: 2000, checkpoint_max_steps: 4000}",
    "total_steps=1000000000",
    "gateway.drain=1",
)


class NimRun(LeagueOfRun):
    """A small `python -m workers.train experiment=nim_gamecore`, and a process of `games` games at its gateways."""

    def __init__(self, folder: Path, port: int, *overrides: str, games: int = 8, **given: Any) -> None:
        TrainingRun.__init__(self, folder, *SMALL, f"gateway.port={port}", *overrides, **given)
        self._ask = [sys.executable, str(EXAMPLE), "--games", str(games), "--url", f"http://127.0.0.1:{port}"]
        self._games: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        started = super().__enter__()
        self._games = subprocess.Popen(self._ask)
        return started

    def __exit__(self, *given: object) -> None:
        try:
            super().__exit__(*given)
        finally:
            if self._games is not None:
                self._games.kill()
                self._games.wait()


def against_first(store: Store) -> tuple[float, float]:
    """Return (win rate of `main` against its first snapshot, decayed games between them)."""
    view = store.view()
    if "main@0" not in view.roster:
        return 0.5, 0.0
    home, away = view.roster["main"].slot, np.array([view.roster["main@0"].slot])
    return float(view.win_rates(home, away)[0]), float(view.games(home, away)[0])
