"""The limits of a machine, to compare figures with: a bare matrix product, an empty loop.

A reader on another machine compares a figure over a limit instead of the figure itself.
"""

from __future__ import annotations

import os
import time

SIDE = 1024  # rows of the square matrices, float32: enough for a library's best rate, few enough for the caches
SECONDS = 0.3  # s of each measurement
LOOP = 1_000_000


def limits() -> dict[str, float]:
    """Return GFLOP/s of a product on one core and on all, and ns of one round of Python's empty loop; best of many."""
    cores = os.cpu_count() or 1
    return {
        "gflops_of_one_core": round(gflops(1), 1),
        "gflops_of_all_cores": round(gflops(cores), 1),
        "empty_loop_ns": round(empty_loop_ns(), 2),
    }


def gflops(threads: int) -> float:
    """Return 1e9 floating-point operations per second of torch's product of two matrices by `threads` threads."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        left, right = torch.randn(2, SIDE, SIDE).unbind()
        best, end = float("inf"), time.perf_counter() + SECONDS
        while time.perf_counter() < end:
            started = time.perf_counter()
            left @ right
            best = min(best, time.perf_counter() - started)
    finally:
        torch.set_num_threads(before)
    return 2 * SIDE**3 / best / 1e9


def empty_loop_ns() -> float:
    """Return ns of one round of `for _ in range(...): pass`."""
    best, end = float("inf"), time.perf_counter() + SECONDS
    while time.perf_counter() < end:
        started = time.perf_counter()
        for _ in range(LOOP):
            pass
        best = min(best, time.perf_counter() - started)
    return best / LOOP * 1e9
