"""The clock's time of work on a device."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence

import torch

WARM_UP = 3


def milliseconds(work: Callable[[], object], device: torch.device, rounds: int, warm_up: int = WARM_UP) -> float:
    """Return the median of the clock's ms of `work`, until the device has done it."""
    took = []
    for number in range(warm_up + rounds):
        waited(device)
        began = time.perf_counter()
        work()
        waited(device)
        if number >= warm_up:
            took.append(1e3 * (time.perf_counter() - began))
    return median_ms(took)


def median_ms(took: Sequence[float]) -> float:
    """Return the median of these ms, rounded to us."""
    return round(statistics.median(took), 3)


def waited(device: torch.device) -> None:
    """Wait until the device has nothing to do."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
