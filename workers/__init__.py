"""The processes: thin entries, one per role, over packages that put tasks, league, agents and envs together.

`python -m workers.NAME` starts an entry; no package imports one.
"""

import sys

from warren import uncaught

if sys.argv[:1] == ["-m"]:  # an entry is about to be imported, which takes seconds
    uncaught.shorten(KeyboardInterrupt)
