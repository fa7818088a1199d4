"""`python -m workers.play FOLDER`: watch what was trained; of a league, play against it.

python -m workers.play runs/cartpole/TRIAL --games 5 --render human
python -m workers.play runs/kuhn/TRIAL                                  # you, against the main agent
python -m workers.play runs/kuhn/TRIAL --player main --against main@12  # two of its players
"""

from __future__ import annotations

import sys

from workers.evaluation.play import main

if __name__ == "__main__":
    sys.exit(main(__doc__))
