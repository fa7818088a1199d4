"""Calls beside their peers: `python -m benchmarks.calls`."""
