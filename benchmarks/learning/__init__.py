"""Learning curves over seeds, beside peers: `python -m benchmarks.learning`, `.connect_four` and `.slimevolley`."""
