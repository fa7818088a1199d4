"""`python -m league.replay`: see league/cli/replay.py."""

import sys

from league.cli.replay import main

if __name__ == "__main__":
    sys.exit(main())
