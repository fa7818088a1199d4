"""Behaviour cloning: a CartPole player cloned from 200 of its games, by several seeds, beside the player itself."""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.apparatus.report import finish
from benchmarks.apparatus.seeds import train

GAMES, PASSES = 200, 5
SHARE = 0.9  # share of the player's mean return that a clone has to reach
MINUTES = 10


def measure(folder: Path, servers: dict[str, str], options: argparse.Namespace) -> None:
    """Train a player, record it, clone it `options.seeds` times; `options.run`: clone the player of that run."""
    player = options.run
    if player is None:
        player = folder / "learning" / "cloned-player"
        train(folder, player.name, ["experiment=cartpole", "seed=1000"], servers, 60 * MINUTES)
    games = folder / "cloned-games.safetensors"
    _command("play", str(player), "--games", str(GAMES), "--record", str(games))
    clones = [_clone(folder, games, seed) for seed in range(1, options.seeds + 1)]
    shares = [clone["mean_return"] / clone["data_return"] for clone in clones]
    figures = {"clone_vs_player": round(statistics.median(shares), 3), "shares": [round(share, 3) for share in shares]}
    reached = sum(share >= SHARE for share in shares)
    finish("learning cloning", {**figures, "reached": reached, "seeds": len(shares), "games": GAMES, "clones": clones})


def _clone(folder: Path, games: Path, seed: int) -> dict[str, Any]:
    """Return the outcome of one clone."""
    settings = [f"imitation.data={games}", f"imitation.passes={PASSES}", f"seed={seed}"]
    _command("imitate", *settings, f"folder={folder}", "project=learning", f"trial=clone-{games.stem}-{seed}")
    outcome: dict[str, Any] = json.loads((folder / f"learning/clone-{games.stem}-{seed}/outcome.json").read_text())
    print(f"seed {seed}: {outcome['mean_return']:g}, the player {outcome['data_return']:g}", flush=True)
    return outcome


def _command(name: str, *words: str) -> None:
    """Run one of Warren's commands; end this program if it fails."""
    line = [sys.executable, "-m", f"workers.{name}", *words]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(line[2:])} failed with status {done.returncode}:\n{done.stdout}{done.stderr}")
