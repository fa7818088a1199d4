"""Several learners by ring-allreduce: `python -m benchmarks.allreduce`."""
