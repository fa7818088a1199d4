"""Throughput as a run grows: `python -m benchmarks.growth`."""
