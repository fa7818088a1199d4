"""Shapes and sizes of the stored and drawn data, the same for all; the peers' Python reads it too: only numpy."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

WARM_UP = 0.2  # share of the time that is measured


@dataclass(frozen=True)
class Case:
    """`capacity` transitions of observations of this shape and dtype, from `slots` environments; a draw has `batch`."""

    capacity: int
    shape: tuple[int, ...]
    dtype: str
    slots: int
    steps: int  # steps of each environment in a segment
    batch: int

    def observations(self, generator: np.random.Generator) -> np.ndarray:
        """Return random observations [steps + 1, slots, ...]."""
        shape = (self.steps + 1, self.slots, *self.shape)
        if self.dtype == "uint8":
            return generator.integers(0, 255, shape, np.uint8)
        return generator.normal(size=shape).astype(self.dtype)


CASES = {
    "vectors": Case(1_000_000, (4,), "float32", 64, 16, 256),
    "images": Case(100_000, (4, 84, 84), "uint8", 8, 16, 32),
}
QUICK = {
    "vectors": Case(200_000, (4,), "float32", 64, 16, 256),
    "images": Case(10_000, (4, 84, 84), "uint8", 8, 16, 32),
}


def rate(action: Callable[[], object], transitions: int, seconds: float) -> float:
    """Return transitions per second of `action`, which handles `transitions`, over `seconds` after a warm-up.

    Seconds are of the processor: nothing here waits, and other processes on the machine do not count.
    """
    counted, ends = 0, time.process_time() + WARM_UP * seconds
    while time.process_time() < ends:
        action()
    began = time.process_time()
    while (now := time.process_time()) - began < seconds:
        action()
        counted += transitions
    return counted / (now - began)
