"""`python -m workers.replay RUN [MATCH]`: recorded matches of a league, played again.

python -m workers.replay runs/kuhn                       # those of the newest run, a line each
python -m workers.replay runs/kuhn/TRIAL --check         # all played again, and compared with what is recorded
python -m workers.replay runs/kuhn/TRIAL 3fa2 --game 2   # turn by turn; the match by how its id begins, or last
python -m workers.replay runs/mine last --video last.gif # filmed, where the game draws itself

Matches are recorded if the league's settings say so: league.replay_every=100 (docs/replays.md). Another command,
python -m league.replay, shows the league's whole history, its standings at any moment.
"""

from __future__ import annotations

import sys

from workers.replays.command import main

if __name__ == "__main__":
    sys.exit(main(__doc__))
