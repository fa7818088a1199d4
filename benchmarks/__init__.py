"""Measurements: `python -m benchmarks.NAME`. Ctrl-C and bad input end them without a traceback."""

from warren import uncaught
from warren.errors import WarrenError

uncaught.shorten(KeyboardInterrupt, WarrenError)
