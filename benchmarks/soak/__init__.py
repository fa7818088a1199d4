"""Saturated services, errors and event loops for a minute: `python -m benchmarks.soak`."""
