"""UnrollRing: the arrays of a replay, and where sequences may begin in them.

A row is one slot's unroll of T steps as it was sampled, with the observation that followed. Rows are written in turn,
and the oldest are overwritten. A row is linked to the row that continues it, once that row has come: it is from the
next segment of the same stream, and begins with the very observation that followed. So a sequence of `length` steps
runs over rows of one stream without a gap. It never runs into overwritten rows, since later steps were written later.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from agents.replay.arrays import allocated
from agents.replay.layout import like_cuts, paths, rows_of, slots_of_groups, told, understood
from agents.trajectories import Trajectory
from agents.trajectories.checks import CUTS
from agents.trajectories.cuts import places
from agents.trajectories.specs import OF_SLOTS
from agents.trees import flattened
from warren.errors import CheckpointError, ConfigurationError
from warren.trees import Tree, leaves, map_tree, take

APART = {"episodes", *CUTS, "last", "observation"}  # fields that are stored differently
OF_ROWS = ("following", "before", "startable", "led")
OF_ALL = ("steps", "rows", "written", "length", "moments", "together", "keeps_cuts", "starts_only")
BEFORE_GROUPS = {"together": 1}  # for a file from before replays could hold groups
STREAMS = 256  # with more streams than this, those with nothing left in the ring are forgotten


@dataclass(slots=True)
class Stream:
    """The segment of a source that came last: its number, its first row's index since the beginning, and its slots."""

    number: int
    first: int
    slots: int


class UnrollRing:
    """Rows for `capacity` steps, allocated with the first trajectory."""

    def __init__(
        self, capacity: int, length: int, in_memory: int | None = None, folder: Path | None = None, groups: bool = False
    ) -> None:
        """`length`: steps of a sequence. Arrays beyond `in_memory` bytes are in files in `folder`. `groups`: sequences
        begin at the first slot of a group, and are drawn with those of its other slots."""
        self._groups, self.together = groups, 1  # slots of a group
        self._capacity, self.length, self._in_memory, self._folder = capacity, length, in_memory, folder
        self.steps = self.rows = 0  # T of each row, and how many there are
        self.written = 0  # rows since the beginning
        self.streams: dict[str, Stream] = {}
        self.cuts: dict[int, list[tuple[int, Tree]]] = {}  # row -> steps at which it was cut off, what is kept of each
        self.moments: list[str] = []  # fields that are also known for the moment after a row's last step
        self.arrays: dict[str, np.ndarray] = {}  # by path
        self.keeps_cuts = False
        self.starts_only = False  # sequences begin where rows do, where the memory is known
        self._like: dict[str, Tree] = {}  # field -> a tree of paths

    @property
    def most_starts(self) -> int:
        """Steps of a row that sequences may begin at, where enough rows go on."""
        return 1 if self.starts_only else self.steps

    @property
    def filled(self) -> int:
        """Rows that hold something."""
        return min(self.written, self.rows)

    # Writing.

    def add(self, trajectory: Trajectory, source: str, number: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Copy a segment, the `number`-th of `source`; return (rows written, older rows that it prolongs, how many
        steps of each of the latter were possible beginnings of sequences until now).

        Raises ConfigurationError for a segment that does not fit.
        """
        if not self.rows:
            self._allocate(trajectory)
        steps, slots = trajectory.terminated.shape
        if steps != self.steps:
            raise ConfigurationError(
                f"replay: a segment of {steps} steps came after those of {self.steps}; all have to be equally long"
            )
        if slots > self.rows:
            raise ConfigurationError(
                f"replay.capacity: {self._capacity} steps hold less than one segment of {steps} x {slots}; raise it"
            )
        rows = (self.written + np.arange(slots)) % self.rows
        self.led[rows] = np.arange(slots) % self.together > 0
        for row in rows.tolist() if self.cuts else ():
            self.cuts.pop(row, None)
        self._write(trajectory, rows)
        older = self._link(trajectory, rows, source, number)
        self.written += slots
        self.streams[source] = Stream(number, self.written - slots, slots)
        if len(self.streams) > STREAMS:
            oldest = self.written - self.rows
            self.streams = {name: stream for name, stream in self.streams.items() if stream.first >= oldest}
        return rows, *self._count(rows, older)

    def _allocate(self, first: Trajectory) -> None:
        steps, slots = first.terminated.shape
        self.together = slots_of_groups(first) if self._groups else 1
        self.steps, self.rows = steps, max(self._capacity // steps, 1)
        if slots > self.rows:
            self.rows = 0
            raise ConfigurationError(
                f"replay.capacity: {self._capacity} steps hold less than one segment of {steps} x {slots}; raise it"
            )
        self.keeps_cuts, self.starts_only = first.cut_at is not None, bool(first.memory)
        self.moments = [name for name in ("observation", "action_mask") if name in first.last]
        shapes: dict[str, Any] = {}
        names = [each.name for each in fields(first) if each.name not in APART]
        for name in ("observation", *names):
            tree = getattr(first, name)
            if tree is None:
                continue
            self._like[name] = paths(tree, name)
            for path, leaf in leaves(tree, name):
                leading = (steps + 1,) if name in self.moments else () if name in OF_SLOTS else (steps,)
                own = leaf.shape[1:] if name in OF_SLOTS else leaf.shape[2:]
                shapes[path] = ((self.rows, *leading, *own), leaf.dtype)
        self._make(shapes)

    def _make(self, shapes: Mapping[str, Any]) -> None:
        """Allocate arrays of these shapes and dtypes, and the bookkeeping of each row."""
        self.arrays = allocated(shapes, self._in_memory, self._folder)
        self.flat = {
            path: array if path.partition(".")[0] in OF_SLOTS else flattened(array)
            for path, array in self.arrays.items()
        }
        # For each row: the row that continues it; the one before it, counted since the beginning; the number of its
        # first steps, at which a sequence may begin.
        self.following = np.full(self.rows, -1)
        self.before = np.full(self.rows, -1)
        self.startable = np.zeros(self.rows, np.int64)
        self.led = np.zeros(self.rows, np.bool_)  # True: not the first of its group, and drawn together with that

    def _write(self, trajectory: Trajectory, rows: np.ndarray) -> None:
        first, slots = int(rows[0]), len(rows)
        until_end = min(slots, self.rows - first)
        pieces = [(slice(first, first + until_end), slice(0, until_end))]
        if until_end < slots:
            pieces.append((slice(0, slots - until_end), slice(until_end, slots)))
        for name in self._like:
            last = dict(leaves(trajectory.last[name], name)) if name in self.moments else {}
            for path, leaf in leaves(getattr(trajectory, name), name):
                array = self.arrays[path]
                for here, part in pieces:
                    if name in OF_SLOTS:
                        array[here] = leaf[part]
                    else:
                        array[here, : self.steps] = leaf[:, part].swapaxes(0, 1)
                    if last:
                        array[here, self.steps] = last[path][part]
        if (cuts := trajectory.cuts) is not None:
            for index, (step, slot) in enumerate(cuts[0].tolist()):
                kept = map_tree(np.copy, take(cuts[1], index))
                self.cuts.setdefault(int(rows[slot]), []).append((step, kept))

    def _link(self, trajectory: Trajectory, rows: np.ndarray, source: str, number: int) -> np.ndarray:
        """Link these rows to those before them in their stream; return the latter."""
        self.following[rows], self.before[rows] = -1, -1
        stream = self.streams.get(source)
        if stream is None or stream.number + 1 != number or stream.slots != len(rows):
            return rows[:0]
        counted = stream.first + np.arange(len(rows))
        older = counted % self.rows
        goes_on = counted >= self.written + len(rows) - self.rows
        for path, leaf in leaves(trajectory.observation, "observation"):
            last = self.arrays[path][older, self.steps]
            goes_on &= (last == leaf[0]).reshape(len(rows), -1).all(axis=1)
        goes_on = goes_on.reshape(-1, self.together).all(1).repeat(self.together)
        older, newer = older[goes_on], rows[goes_on]
        self.following[older], self.before[newer] = newer, counted[goes_on]
        return older

    def _count(self, rows: np.ndarray, older: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Count again where sequences may begin in `rows` and all rows that these prolong; return (the latter, their
        counts before).
        """
        self.startable[rows] = self._starts(1)
        prolonged, known, behind = [rows[:0]], [rows[:0]], 1
        while len(older) and self._starts(behind) < self.most_starts:  # 0 at first if sequences have many rows
            known.append(self.startable[older])
            prolonged.append(older)
            self.startable[older] = self._starts(behind + 1)
            counted = self.before[older]
            counted = counted[counted >= max(self.written - self.rows, 0)]
            older, behind = counted % self.rows, behind + 1
        for changed in (rows, *prolonged) if self.together > 1 else ():
            self.startable[changed[self.led[changed]]] = 0
        return np.concatenate(prolonged), np.concatenate(known)

    def _starts(self, rows: int) -> int:
        """Return how many steps of a row sequences may begin at, if it and those that go on are `rows` rows."""
        return min(max(rows * self.steps - self.length + 1, 0), self.most_starts)

    # Reading.

    def sequences(self, row: np.ndarray, step: np.ndarray) -> Trajectory:
        """Return the sequences that begin at these rows and steps, int64 [n], as one Trajectory [length, n]; of groups
        of P slots [length, n * P], those of a group one after another."""
        groups = np.arange(len(row)).repeat(self.together)
        if self.together > 1:
            row = ((row[:, None] + np.arange(self.together)) % self.rows).ravel()
            step = step.repeat(self.together)
        steps, rows = step[None], row[None]
        if self.length > 1:
            steps, rows = step + np.arange(self.length)[:, None], rows.repeat(self.length, axis=0)
        while self.length > 1 and (beyond := steps >= self.steps).any():
            rows = np.where(beyond, self.following[rows], rows)
            steps = steps - self.steps * beyond
        at = (rows * self.steps + steps).ravel()
        seen = rows * (self.steps + 1) + steps
        shape = self.length, len(row)
        found: dict[str, Any] = {}
        for name, like in self._like.items():
            if name in self.moments:
                found[name] = self._taken(like, seen.ravel(), shape)
            elif name in OF_SLOTS:
                found[name] = self._taken(like, row, (len(row),))
            else:
                found[name] = self._taken(like, at, shape)
        last = {name: self._taken(self._like[name], seen[-1] + 1, (len(row),)) for name in self.moments}
        if self.together > 1:
            found["group"] = groups
        trajectory = Trajectory(**found, last=last, episodes=np.zeros((0, 2), np.float32))
        if self.keeps_cuts:
            cut_at = places(trajectory.terminated, trajectory.truncated)
            trajectory.cuts = cut_at, self._kept_at_cuts(rows[tuple(cut_at.T)], steps[tuple(cut_at.T)])
        return trajectory

    def _taken(self, like: Tree, at: np.ndarray, shape: tuple[int, ...]) -> Tree:
        return map_tree(lambda path: rows_of(self.flat[path], at, shape), like)

    def _kept_at_cuts(self, rows: np.ndarray, steps: np.ndarray) -> Any:
        kept = [dict(self.cuts[row])[step] for row, step in zip(rows.tolist(), steps.tolist(), strict=True)]
        if kept:
            return map_tree(lambda *parts: np.stack(parts), *kept)
        return {name: self._taken(self._like[name], np.zeros(0, np.int64), (0,)) for name in self.moments}

    # In a file.

    def state(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Return (arrays, the rest as JSON can hold it): all that is kept, without copying it."""
        filled = slice(0, self.filled)
        arrays = {f"array.{path}": array[filled] for path, array in self.arrays.items()}
        arrays |= {f"row.{name}": getattr(self, name)[filled] for name in OF_ROWS if self.rows}
        cuts = [(row, step, seen) for row, kept in sorted(self.cuts.items()) for step, seen in kept]
        arrays["cuts"] = np.array([cut[:2] for cut in cuts], np.int64).reshape(-1, 2)
        for path, like in leaves({name: self._like[name] for name in self.moments}, "cut"):
            flat = self.flat[like]
            seen = [dict(leaves(cut[2], "cut"))[path] for cut in cuts]
            arrays[path] = np.stack(seen) if seen else np.zeros((0, *flat.shape[1:]), flat.dtype)
        streams = {name: [stream.number, stream.first, stream.slots] for name, stream in self.streams.items()}
        meta = {name: getattr(self, name) for name in OF_ALL}
        return arrays, {**meta, "streams": streams, "like": {name: told(tree) for name, tree in self._like.items()}}

    def load_state(self, arrays: Mapping[str, np.ndarray], meta: Mapping[str, Any]) -> None:
        """Take over what `state` returned. Raises CheckpointError for one of another capacity, length or version."""
        meta = {**BEFORE_GROUPS, **meta}
        if lacking := [name for name in OF_ALL if name not in meta]:
            raise CheckpointError(f"another version of Warren wrote it, without {', '.join(lacking)}")
        rows = max(self._capacity // meta["steps"], 1) if meta["steps"] else 0
        if meta["length"] != self.length or meta["rows"] != rows:
            raise CheckpointError(
                f"it holds sequences of {meta['length']} steps in {meta['rows']} x {meta['steps']} steps, this run's "
                f"{self.length} in {self._capacity}"
            )
        for name in OF_ALL:
            setattr(self, name, meta[name])
        if not rows:
            return
        self._like = {name: understood(tree) for name, tree in meta["like"].items()}
        kept = {name.removeprefix("array."): array for name, array in arrays.items() if name.startswith("array.")}
        self._make({path: ((rows, *array.shape[1:]), array.dtype) for path, array in kept.items()})
        for path, array in kept.items():
            self.arrays[path][: len(array)] = array
        rows_kept = {"row.led": np.zeros(self.filled, np.bool_), **arrays}
        for name in OF_ROWS:
            getattr(self, name)[: self.filled] = rows_kept[f"row.{name}"]
        self.streams = {name: Stream(*stream) for name, stream in meta["streams"].items()}
        seen = {name: like_cuts(self._like[name]) for name in self.moments}
        for index, (row, step) in enumerate(arrays["cuts"].tolist()):
            kept_cut = map_tree(lambda path, index=index: arrays[path][index], seen)
            self.cuts.setdefault(row, []).append((step, kept_cut))
