"""Environment adapters against bare loops: `python -m benchmarks.adapters`."""
