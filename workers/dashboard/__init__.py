"""Leagues and plain runs in a browser: `python -m workers.dashboard`."""
