"""`python -m league.show`: see league/cli/show.py."""

import sys

from league.cli.show import main

if __name__ == "__main__":
    sys.exit(main())
