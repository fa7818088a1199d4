"""`python -m workers.train`: one command that trains: servers, a learner, actors, a live view, and a clean end.

python -m workers.train                          # CartPole-v1 by PPO, gathered rounds, two actors
python -m workers.train sampling=streaming actors=4
python -m workers.train resume=runs/cartpole/20260101-120000-ab12
"""

from __future__ import annotations

import sys

from workers.config.command_line import role
from workers.launch.training import run

if __name__ == "__main__":
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    role("train", run)()
