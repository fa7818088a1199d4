"""`python -m workers.deadletters`: what failed for good in a run: look at it, send it again, drop it.

python -m workers.deadletters --run NAME                     # how many, by service and reason
python -m workers.deadletters --run NAME list --each         # one by one, with their ids
python -m workers.deadletters --run NAME show ID             # one whole: headers, arguments, reason
python -m workers.deadletters --run NAME requeue SERVICE     # send again what died of a service; or ID...; or --all
python -m workers.deadletters --run NAME drop ID             # for good; or SERVICE...; or --all; asks first

An ID may be cut short while it names one alone. `--json` is for programs: list and show print JSON. A letter leaves the
dead letters only when the broker has confirmed its copy; whoever is killed in between leaves both, and it runs twice.
The servers' URLs and the run come from options or from WARREN_BROKER_URL, WARREN_REDIS_URL and WARREN_RUN. The exit
status is 0, 1 where something was to be sent and stayed, 2 for an error.
"""

from __future__ import annotations

import sys

from workers.ui.deadletters import main

if __name__ == "__main__":
    sys.exit(main(__doc__))
