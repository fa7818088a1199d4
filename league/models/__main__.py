"""`python -m league.models`: see league/cli/models.py."""

import sys

from league.cli.models import main

if __name__ == "__main__":
    sys.exit(main())
