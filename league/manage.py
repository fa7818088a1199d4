"""`python -m league.manage`: see league/cli/manage.py."""

import sys

from league.cli.manage import main

if __name__ == "__main__":
    sys.exit(main())
