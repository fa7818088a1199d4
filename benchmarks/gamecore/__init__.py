"""A gateway's requests beside Ray Serve: `python -m benchmarks.gamecore`."""
