"""Instruments that several benchmarks share: reports, jobs, curves, hosts, clusters, and parts that do nothing."""
