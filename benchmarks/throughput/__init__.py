"""Steps per second of whole training, beside peers: `python -m benchmarks.throughput`."""
