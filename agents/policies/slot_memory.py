"""The memories of many slots that do not step together, as in games in turns."""

from __future__ import annotations

from typing import Protocol
from weakref import WeakKeyDictionary

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


class Remembering(Protocol):
    """A policy, or anything else that has the memory of one."""

    def initial_memory(self, n: int) -> Memory: ...


class SeatMemories:
    """The memory of each of `seats`, where players of several networks sit, each from an episode's start to its end."""

    def __init__(self, seats: int) -> None:
        self._seats = seats
        self._kinds: dict[tuple[object, ...], SlotMemory] = {}  # by the shapes of a memory
        self._of: WeakKeyDictionary[Remembering, SlotMemory] = WeakKeyDictionary()

    def of(self, player: Remembering, seats: np.ndarray) -> Memory:
        """Return the memory of `seats` int64 [K], where `player` sits, as [K, ...]."""
        return self._held(player).of(seats)

    def keep(self, player: Remembering, seats: np.ndarray, memory: Memory) -> None:
        """Set the memory of `seats` to `memory` [K, ...], as `player` has it."""
        self._held(player).keep(seats, memory)

    def begin(self, seats: np.ndarray | slice = slice(None)) -> None:
        """Reset the memory of `seats` (all, if not given), where an episode begins."""
        for held in self._kinds.values():
            held.begin(seats)

    def _held(self, player: Remembering) -> SlotMemory:
        held = self._of.get(player)
        if held is None:
            memory = player.initial_memory(0)
            kind = tuple((name, part.shape, part.device) for name, part in sorted(memory.items()))
            held = self._kinds.get(kind)
            if held is None:
                held = self._kinds[kind] = SlotMemory(player.initial_memory(self._seats))
            self._of[player] = held
        return held
