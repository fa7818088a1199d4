"""`python -m workers.train`: one command that trains: servers, a learner, actors, a live view, and a clean end.

python -m workers.train                          # CartPole-v1 by PPO, gathered rounds, two actors
python -m workers.train sampling=streaming actors=4
python -m workers.train resume=runs/cartpole/20260101-120000-ab12
"""

from __future__ import annotations

import os
import sys
from contextlib import nullcontext
from functools import partial

from warren import standard_streams
from workers.config.roles import ACTOR, LEARNER

# Modules that all runs need and that take long to import.
HEAVY = ("workers.config.command_line", "workers.config.validation", LEARNER.work["plain"], ACTOR.work["plain"])


def main() -> None:
    """Run the command line."""
    # Before the first import of NumPy, which would start a thread per core: a process with threads cannot fork safely.
    os.environ["OMP_NUM_THREADS"] = "1"
    standard_streams.prepare()
    from workers.servers.forks import Forks

    with Forks.begin() or nullcontext() as forks:
        if forks is not None:
            forks.load(HEAVY)  # begins at once, while the imports below go on
        from workers.config.command_line import command
        from workers.launch.kinds.training import run

        sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
        command("train", partial(run, forks=forks))()


if __name__ == "__main__":
    main()
