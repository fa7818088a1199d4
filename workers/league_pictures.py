"""`python -m workers.league_pictures runs/kuhn/TRIAL`: draws a saved league, with nothing running."""

from __future__ import annotations

import sys

from workers.evaluation.report import main

if __name__ == "__main__":
    sys.exit(main())
