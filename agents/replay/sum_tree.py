"""SumTree: draws items in proportion to their priorities, all draws of a batch at once.

A node is the sum of 32 below it, and is summed again when one of them changes, so that rounding errors do not add up.
The upper levels of a binary tree would each cost as much numpy overhead as a whole level of 32; the top is searched as
one list.
"""

from __future__ import annotations

import numpy as np

FANOUT = 32
_ONES = np.ones(FANOUT)
_UP_TO = np.triu(np.ones((FANOUT, FANOUT)))  # multiplied by: running sums; far quicker than cumsum of small arrays
TOP = 1024  # nodes at most that are searched as one list


class SumTree:
    """Priorities float64 of `size` items, 0 at first; an item of priority 0 is never drawn."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._levels = [np.zeros(_padded(size))]
        while len(self._levels[-1]) > TOP:
            self._levels.append(np.zeros(_padded(len(self._levels[-1]) // FANOUT)))
        self._blocks = [level.reshape(-1, FANOUT) for level in self._levels]

    @property
    def priorities(self) -> np.ndarray:
        """Return the priorities float64 [size], a view that must not be written to."""
        return self._levels[0][: self._size]

    @property
    def total(self) -> float:
        """The sum of all priorities."""
        return float(self._levels[-1].sum())

    def set(self, items: np.ndarray, priorities: np.ndarray | float) -> None:
        """Set the priorities of `items` int64 [K]; for an item that comes twice the last one counts."""
        self._levels[0][items] = priorities
        for blocks, above in zip(self._blocks, self._levels[1:], strict=False):
            items = items // FANOUT
            above[items] = blocks.take(items, axis=0) @ _ONES

    def set_range(self, start: int, priorities: np.ndarray) -> None:
        """Set the priorities of the items from `start` on, which is quicker than each by its index."""
        stop = start + len(priorities)
        self._levels[0][start:stop] = priorities
        for blocks, above in zip(self._blocks, self._levels[1:], strict=False):
            start, stop = start // FANOUT, -(-stop // FANOUT)
            above[start:stop] = blocks[start:stop] @ _ONES

    def draw(self, count: int, generator: np.random.Generator) -> np.ndarray:
        """Return items int64 [count], one for each of `count` equal parts of the total, as Schaul et al. 2016 draw.

        Raises ValueError where all priorities are 0.
        """
        if not self.total > 0:
            raise ValueError("no item has a priority above 0, so none can be drawn")
        mass = (np.arange(count) + generator.random(count)) * (self.total / count)
        items = self._find(mass)
        while (lost := np.flatnonzero(self._levels[0][items] <= 0)).size:  # by rounding
            items[lost] = self._find(generator.random(len(lost)) * self.total)
        return items

    def _find(self, mass: np.ndarray) -> np.ndarray:
        """Return the items in which the running sum over all items reaches `mass` [K]."""
        sums = self._levels[-1].cumsum()
        node = np.minimum(sums.searchsorted(mass, side="right"), len(sums) - 1)
        mass = mass - (sums[node] - self._levels[-1][node])
        row = np.arange(len(mass)) * FANOUT
        for blocks in self._blocks[-2::-1]:
            below = blocks.take(node, axis=0)
            sums = below @ _UP_TO
            child = (sums > mass[:, None]).argmax(axis=1)
            at = row + child
            mass = mass - (sums.ravel().take(at) - below.ravel().take(at))
            node = node * FANOUT + child
        return node


def _padded(size: int) -> int:
    return -(-size // FANOUT) * FANOUT
