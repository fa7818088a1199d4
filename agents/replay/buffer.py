"""ReplayBuffer: stores segments, and draws sequences of them, evenly or by priority."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from agents.replay.interface import Draw, checked_priorities
from agents.replay.ring import UnrollRing
from agents.replay.sum_tree import SumTree
from agents.trajectories import Trajectory
from warren.errors import CheckpointError

LEAST = 1e-6  # added to each priority, so that an item of priority 0 is drawn now and then
MOST_TRIES = 1 << 16  # candidates of a draw; where more would be needed, those that may be drawn are counted first


class ReplayBuffer:
    """The last `capacity` steps of all streams, and draws of sequences of `length` steps that lie in one stream.

    Sequences may overlap and cross an episode's end. They begin at steps where an agent decided. Those of a network
    with a memory begin where segments do, since the memory of that moment is known: if segments are shorter than
    sequences, these overlap.

    With `priority_exponent` alpha they are drawn in proportion to priority^alpha (Schaul et al. 2016), and new ones
    have the greatest priority given so far; without it they are drawn evenly.
    """

    def __init__(
        self,
        capacity: int,
        length: int = 1,
        priority_exponent: float | None = None,
        seed: int = 0,
        in_memory: int | None = None,
        folder: Path | None = None,
        groups: bool = False,
        unrolls: bool = False,
    ) -> None:
        """Keep what exceeds `in_memory` bytes, if that is given, in files in `folder`. With `groups` the sequences of
        all slots of a group are drawn together, as one. With `unrolls` all steps of a sequence are learned from, so it
        may also begin at a step where no agent decided."""
        self.ring = UnrollRing(capacity, length, in_memory, folder, groups)
        self._unrolls = unrolls
        self.generator = np.random.default_rng(seed)
        self._exponent = priority_exponent
        self.greatest = 1.0  # greatest of all priorities^alpha
        self.tree: SumTree | None = None
        self.startable = 0  # sequences that may be drawn

    def __len__(self) -> int:
        """Return the number of steps that are kept."""
        return self.ring.filled * self.ring.steps

    @property
    def together(self) -> int:
        """Slots that are drawn as one: those of a group, or 1."""
        return self.ring.together

    @property
    def per_row(self) -> int:
        """Items of a row: its steps, or one where sequences begin with rows."""
        return 1 if self.ring.starts_only else self.ring.steps

    def add(self, trajectory: Trajectory, source: str = "", number: int = 0) -> None:
        """Copy a segment, the `number`-th of the stream `source`. Raises ConfigurationError for one that does not fit.

        The slots of a stream's next segment continue those of this one, if nothing is missing in between.
        """
        ring = self.ring
        new = (ring.written + np.arange(trajectory.num_slots)) % max(ring.rows, 1)
        gone = self._may_begin(new, ring.startable[new]).sum() if ring.rows else 0
        rows, older, known = ring.add(trajectory, source, number)
        may = self._may_begin(rows, ring.startable[rows])
        prolonged = self._may_begin(older, ring.startable[older]) & ~self._may_begin(older, known)
        self.startable += int(may.sum() + prolonged.sum() - gone)
        if self._exponent is not None:
            self._enter(rows, may, older, prolonged)

    @property
    def _decided(self) -> np.ndarray | None:
        """Return bool [rows, steps], True where an agent decided, so sequences may begin; None: everywhere."""
        ring = self.ring
        return None if self._unrolls or ring.starts_only or ring.together > 1 else ring.arrays.get("valid")

    def _may_begin(self, rows: np.ndarray, counts: np.ndarray) -> np.ndarray:
        """Return bool [K, per_row], True where sequences may begin among the first `counts` steps of these rows."""
        may = np.arange(self.per_row) < counts[:, None]
        return may if (decided := self._decided) is None else may & decided[rows]

    def _enter(self, rows: np.ndarray, may: np.ndarray, older: np.ndarray, prolonged: np.ndarray) -> None:
        """Give the greatest priority to new items: those of `rows` in `may`, those of `older` in `prolonged`, bool
        [K, per_row] each."""
        ring, per_row = self.ring, self.per_row
        if self.tree is None:
            self.tree = SumTree(ring.rows * per_row)
        priorities = np.where(may, self.greatest, 0.0)
        turn = int(np.argmin(rows))  # rows up to the ring's end, of a segment that goes around it; else 0
        for here in (slice(0, turn), slice(turn, None)) if turn else (slice(None),):
            self.tree.set_range(int(rows[here][0]) * per_row, priorities[here].ravel())
        if len(older):
            items = (older[:, None] * per_row + np.arange(per_row))[prolonged]
            self.tree.set(items, self.greatest)

    def draw(self, count: int, weight_exponent: float = 0.0) -> Draw:
        """Draw `count` sequences, or groups of them, with replacement. Raises ValueError while there is none.

        Draws by priority have weights (N P(i))^-weight_exponent, divided by the greatest of the draw.
        """
        if self.startable == 0:
            raise ValueError(f"no sequence of {self.ring.length} steps was stored yet, so none can be drawn")
        weights = None
        if self.tree is None:
            items = self.draw_items(count)
        else:
            items = self.tree.draw(count, self.generator)
            chance = self.tree.priorities[items] * (self.startable / self.tree.total)
            weights = chance**-weight_exponent
            weights = (weights / weights.max()).astype(np.float32).repeat(self.ring.together)
        return self.of_items(items, weights)

    def of_items(self, items: np.ndarray, weights: np.ndarray | None = None) -> Draw:
        """Return the Draw of these items, int64 [n], each of which may be drawn."""
        per_row = self.per_row
        row, step = (items, np.zeros_like(items)) if per_row == 1 else np.divmod(items, per_row)
        return Draw(self.ring.sequences(row, step), items, self._counted(row), weights)

    def newest(self, steps: int) -> np.ndarray:
        """Return the items, int64 [K], that may be drawn among the `steps` steps stored last, in whole rows."""
        ring, per_row = self.ring, self.per_row
        count = min(-(-steps // max(ring.steps, 1)), ring.filled)
        rows = (ring.written - 1 - np.arange(count)) % max(ring.rows, 1)
        items: np.ndarray = rows[:, None] * per_row + np.arange(per_row)
        return items[self._may_begin(rows, ring.startable[rows])] if count else items.ravel()

    def draw_items(self, count: int) -> np.ndarray:
        """Draw `count` items evenly, int64 [count], among those that may be drawn; there has to be one."""
        ring, per_row = self.ring, self.per_row
        candidates = ring.filled * per_row
        if self.startable == candidates:
            return self.generator.integers(0, candidates, count)
        tries = int(1.2 * count * candidates / self.startable) + 16
        if tries > MOST_TRIES:  # few may be drawn: count them
            may = self._may_begin(np.arange(ring.filled), ring.startable[: ring.filled])
            return np.flatnonzero(may)[self.generator.integers(0, self.startable, count)]
        found = np.zeros(0, np.int64)
        while len(found) < count:
            items = self.generator.integers(0, candidates, tries)
            row, step = (items, 0) if per_row == 1 else np.divmod(items, per_row)
            may = step < ring.startable[row]
            if (decided := self._decided) is not None:
                may &= decided[row, step]
            found = np.concatenate([found, items[may]])
        return found[:count]

    def set_priorities(self, draw: Draw, priorities: np.ndarray) -> None:
        """Set the priorities float [n] of drawn sequences, leaving out those that were overwritten since. A group gets
        the greatest of its slots' priorities.

        Raises ConfigurationError for priorities that are not n finite numbers of at least 0.
        """
        if self.tree is None:
            return
        given = checked_priorities(priorities, len(draw.items) * self.ring.together)
        assert self._exponent is not None
        values = (given.reshape(-1, self.ring.together).max(1) + LEAST) ** self._exponent
        row = draw.items if self.per_row == 1 else draw.items // self.per_row
        there = self._counted(row) == draw.counted
        self.tree.set(draw.items[there], values[there])
        self.greatest = max(self.greatest, float(values.max()))

    # In a file (agents/replay/saving.py).

    def state(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Return (arrays, the rest as JSON can hold it): all that is kept, without copying it."""
        arrays, meta = self.ring.state()
        if self.tree is not None:
            arrays["priorities"] = self.tree.priorities[: self.ring.filled * self.per_row]
        mine = {"startable": self.startable, "greatest": self.greatest, "exponent": self._exponent}
        return arrays, {**mine, "generator": self.generator.bit_generator.state, "ring": meta}

    def load_state(self, arrays: Mapping[str, np.ndarray], meta: Mapping[str, Any]) -> None:
        """Take over what `state` returned. Raises CheckpointError for the state of another kind of replay."""
        if "exponent" not in meta:
            raise CheckpointError(f"it was written by a {meta.get('buffer', 'buffer')} of replay.buffer")
        if (meta["exponent"] is None) != (self._exponent is None):
            raise CheckpointError("it is drawn from in another way: by priority, or evenly")
        self.ring.load_state(arrays, meta["ring"])
        self.startable, self.greatest = meta["startable"], meta["greatest"]
        self.generator.bit_generator.state = meta["generator"]
        if "priorities" in arrays:
            self.tree = SumTree(self.ring.rows * self.per_row)
            self.tree.set_range(0, arrays["priorities"])

    def _counted(self, row: np.ndarray) -> np.ndarray:
        """Return the numbers, since the beginning, of the unrolls in these rows."""
        newest = self.ring.written - 1
        return newest - (newest - row) % self.ring.rows
