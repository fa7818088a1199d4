"""`python -m workers.clone run=RUN name=NAME league=RUN`: a trained policy joins a league, and learns nothing there.

python -m workers.clone run=runs/kuhn/TRIAL version=1200 name=champion league=NAME    # redis=URL, or WARREN_REDIS_URL
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass

from league.models.command_line import existing
from workers.config.name_value import command
from workers.models.cloning import clone
from workers.runtime.trained import load


@dataclass
class CloneConfig:
    """Settings of a clone: a policy, and the league that it joins."""

    run: str  # a run folder, or a folder of runs, of which the newest is taken
    name: str  # name of the new player
    league: str  # name of the league's run on the servers
    redis: str | None = None  # URL; null: WARREN_REDIS_URL
    player: str = "main"  # player of a league's run; or a frozen one: main@1200
    version: int | None = None  # version of the weights, among the run's checkpoints; null: the newest


def run(config: CloneConfig) -> int:
    """Clone the policy; return exit status 0."""
    trained = load(config.run, config.player, config.version)
    store, pool = existing(argparse.Namespace(run=config.league, redis=config.redis))
    model = clone(store, pool, trained.policy, trained.version, config.name)
    print(f"{config.name} is a player of league {config.league}, for good the model {model} ({trained.source})")
    return 0


def main() -> int:
    """Run the command line; return the exit status."""
    return command(__doc__, CloneConfig, run)


if __name__ == "__main__":
    sys.exit(main())
