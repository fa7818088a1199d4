"""A league's speed, growth and strength: `python -m benchmarks.league`."""
