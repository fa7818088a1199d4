"""The league: its players and models in Redis, and the matchmaking between them."""

import sys

from warren import uncaught

if sys.argv[:1] == ["-m"]:  # a command is about to be imported, which takes a second
    uncaught.shorten(KeyboardInterrupt)
