"""`python -m workers.tournament RUN:PLAYER ...`: a round robin between saved players, with a table and a picture."""

from __future__ import annotations

import sys

from workers.evaluation.tournament import main

if __name__ == "__main__":
    sys.exit(main())
