"""The memories of many slots that do not step together, as in games in turns."""

from __future__ import annotations

import numpy as np
import torch

from agents.networks import Memory


class SlotMemory:
    """The memory of each slot, at first `memory`, a policy's `initial_memory(slots)`; free where that is {}."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    def of(self, slots: np.ndarray) -> Memory:
        """Return the memory of `slots` int64 [K], as [K, ...]."""
        if not self._memory:
            return {}
        rows = torch.from_numpy(slots)
        return {name: part[rows] for name, part in self._memory.items()}

    def keep(self, slots: np.ndarray, memory: Memory) -> None:
        """Set the memory of `slots` to `memory` [K, ...]."""
        if not self._memory:
            return
        rows = torch.from_numpy(slots)
        for name, part in memory.items():
            self._memory[name][rows] = part

    def begin(self, slots: np.ndarray | slice = slice(None)) -> None:
        """Reset the memory of `slots` (all, if not given), where an episode begins."""
        if not self._memory:
            return
        rows = slots if isinstance(slots, slice) else torch.from_numpy(slots)
        for part in self._memory.values():
            part[rows] = 0
