"""The former name of `python -m workers.dead`."""

from __future__ import annotations

import sys

from workers.ui.deadletters import main

if __name__ == "__main__":
    sys.exit(main("The former name of `python -m workers.dead`, whose --help tells more."))
