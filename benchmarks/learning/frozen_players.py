"""A league's run, and its main agent's frozen players in order: what benchmarks against a fixed opponent begin with."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from benchmarks.apparatus.seeds import train
from league.models.saved_files import MODELS
from workers.config.league import LeagueConfig
from workers.config.schema import from_yaml
from workers.runtime.league_paths import league_of

PLAYER = "main"


def run_of(
    experiment: str, folder: Path, servers: dict[str, str], options: argparse.Namespace, minutes: float
) -> tuple[Path, dict[str, Any] | None]:
    """Return (run folder, outcome): `options.run`, whose outcome is None, or a run of `experiment` made now."""
    if options.run is not None:
        return options.run, None
    outcome, _ = train(folder, experiment, [f"experiment={experiment}"], servers, 60 * minutes)
    return folder / "learning" / experiment, outcome


def league_in(run: Path) -> LeagueConfig:
    """Return the league's settings in a run folder."""
    return league_of(from_yaml(run / "config.yaml"))


def frozen(run: Path) -> dict[int, int]:
    """Return version -> decisions of each frozen player of the main agent, in order."""
    league = league_in(run)
    stems = [path.stem for path in (run / "league" / MODELS).glob(f"{PLAYER}@*.safetensors")]
    versions = sorted(int(stem.partition("@")[2]) for stem in stems)
    return {version: version * league.lanes * league.unroll_length for version in versions}
