"""Threads that are switched every microsecond, in place of every 5 ms, so that races show: see `make test-races`."""

import sys

sys.setswitchinterval(1e-6)
