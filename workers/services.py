"""`python -m workers.services`: list a run's services with their workers and load.

python -m workers.services --run NAME              # a table; of a run below runs/, its folder will do too
python -m workers.services --run NAME --watch      # again every 2 s, or --watch SECONDS, until Ctrl-C
python -m workers.services --run NAME --json       # for programs: {"served": [...], "unserved": [...]}
python -m workers.services --run NAME --json --watch   # the same, a line each time

The servers' URLs and the run come from options or from WARREN_BROKER_URL, WARREN_REDIS_URL and WARREN_RUN.
"""

from __future__ import annotations

import sys

from workers.ui.services import main

if __name__ == "__main__":
    sys.exit(main(__doc__))
