"""Random numbers for the threads of a process: a NumPy generator is not thread-safe."""

from __future__ import annotations

import threading

import numpy as np


class ThreadRandom:
    """A generator for each thread, all derived from one `seed`."""

    def __init__(self, seed: int | None) -> None:
        self._seeds, self._lock = np.random.SeedSequence(seed), threading.Lock()
        self._local = threading.local()

    @property
    def generator(self) -> np.random.Generator:
        """Return this thread's generator."""
        if not hasattr(self._local, "generator"):
            with self._lock:
                self._local.generator = np.random.default_rng(self._seeds.spawn(1)[0])
        generator: np.random.Generator = self._local.generator
        return generator
