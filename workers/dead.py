"""`python -m workers.dead`: show the messages of a run that failed for good, send them again, drop them.

python -m workers.dead --run NAME                            # counts by service and reason
python -m workers.dead --run NAME list --each                # one by one, with their ids
python -m workers.dead --run NAME show ID                    # one whole: headers, arguments, reason
python -m workers.dead --run NAME replay SERVICE             # send again what died of a service; or ID...; or --all
python -m workers.dead --run NAME replay ID --from FILE      # with corrected arguments: see below
python -m workers.dead --run NAME drop --reason "too often"  # for good; or SERVICE..., ID..., --all; asks first

FILE is what `show ID --json` wrote (with --whole, if it says "whole": false), with other args and kwargs.
An ID may be cut short while it is unique; --reason takes a part of the reasons to match. `--json` is for programs. A
letter is removed only once the broker has confirmed its copy; if this command is killed in between, both stay, and the
call runs twice. Nothing is unpickled, and long values are shown cut unless --whole is given.
The servers' URLs and the run come from options or from WARREN_BROKER_URL, WARREN_REDIS_URL and WARREN_RUN. The exit
status is 0, 1 if a letter was to be sent and stayed, 2 for an error.
"""

from __future__ import annotations

import sys

from workers.ui.deadletters import main

if __name__ == "__main__":
    sys.exit(main(__doc__))
