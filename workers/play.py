"""`python -m workers.play FOLDER`: watch a trained agent, or play against a league's player.

python -m workers.play runs/cartpole/TRIAL --games 5 --render human
python -m workers.play runs/kuhn/TRIAL                                  # you, against the main agent
python -m workers.play runs/kuhn/TRIAL --player main --against main@12  # two of its players
python -m workers.play openspiel:tic_tac_toe --against runs/ttt         # a game by name, against a league's main agent
"""

from __future__ import annotations

import sys

from workers.evaluation.play import main

if __name__ == "__main__":
    sys.exit(main(__doc__))
