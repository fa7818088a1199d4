"""Turn-based games as time-major arrays: a trajectory is a fixed number of decisions of one seat of one game slot.

A seat decides only in its turn. So in games that are stepped together the seats do not decide together, and the rows of
a [T, N] array cannot be moments. The rows are decisions instead: a trajectory is filled by one seat's decisions in a
game, one after another, then by those in another game. The reward at a decision is all that its seat gets until its
next decision; the end of a game sets `terminated` at the seat's last decision in it. A trajectory of T decisions is
complete once the outcome of its last decision is known: when the game has ended, or when the seat is to decide again.
Then the value of that next decision is the trajectory's last value. Complete trajectories are the slots of a
Trajectory, and GAE is computed along them as along any column. A policy's memory is stored where a trajectory begins,
and is reset after `terminated`. So a trajectory can be continued after a game's end only with the beginning of another
game.

A trajectory belongs to a seat for one game. If it is unfinished when the game ends, it waits for a game that begins, in
any slot and seat; such a game continues the trajectory that has waited longest. No value flows past a game's end, so
this is correct. It keeps decisions from growing too old to learn from while their own seat does not decide in a long
game.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from agents.trajectories import Trajectory, TrajectorySpec, TrajectoryWriter, concatenate
from warren.trees import Tree, take

NONE = -1  # no trajectory


class TrajectoryBuffer:
    """Trajectories of `seats` seats, each `length` decisions long; complete ones wait until they are taken.

    `spec`: the arrays kept of a decision. `max_age`: number of weight versions after which a trajectory is dropped,
    counted from the version that began it (see `renew`).
    """

    def __init__(self, seats: int, length: int, spec: TrajectorySpec, max_age: int | None = None) -> None:
        self.length = length
        self.ready = 0  # complete trajectories
        self._max_age = max_age
        self._expired = 0  # decisions
        # One trajectory per seat: each seat of a game that goes on may hold one.
        self._trajectory = np.full(seats, NONE)  # [seats]: the trajectory of each seat that has decided in its game
        self._decided = np.zeros(seats, np.bool_)  # [seats]: whether it has decided, also if its trajectory was dropped
        self._filled = np.zeros(seats, np.int64)  # [trajectories]: number of decisions in each
        self._partial = np.zeros(0, np.int64)  # unfinished trajectories without a seat, the longest waiting first
        self._empty = np.arange(seats)  # empty trajectories without a seat
        self._writer = TrajectoryWriter(spec, length, seats)
        self._spec = spec
        self._complete: list[Trajectory] = []

    def decide(self, seats: np.ndarray, decision: dict[str, Tree], memory: dict[str, np.ndarray], version: int) -> None:
        """Write decisions of `seats` int64 [K], no seat twice, by weights of `version`.

        `decision`: observation, action, extras and action_mask, trees of arrays [K, ...]; `memory` [K, ...]: the
        policy's before the decision, {} if it has none.
        """
        self._assign(seats[self._trajectory[seats] == NONE])
        self._decided[seats] = True
        trajectories = self._trajectory[seats]
        full = self._filled[trajectories] == self.length
        if full.any():
            following = {"observation": decision["observation"], "action_mask": decision["action_mask"]}
            following |= decision["extras"]
            last = {name: following[name] for name in self._spec.last}
            self._complete_trajectories(trajectories[full], take(last, full))
        rows = self._filled[trajectories]
        begins = rows == 0
        if begins.any():
            self._writer.start(trajectories[begins], take(memory, begins), version)
        self._writer.decide((rows, trajectories), **decision)
        self._writer.follow((rows, trajectories), 0.0)
        self._filled[trajectories] += 1

    def earn(self, reward: np.ndarray) -> None:
        """Add rewards of all seats, float32 [seats]; those before a seat's first decision in a game are dropped."""
        seats = np.flatnonzero(self._trajectory != NONE)
        trajectories = self._trajectory[seats]
        self._writer.reward[self._filled[trajectories] - 1, trajectories] += reward[seats]

    def end(self, seats: np.ndarray) -> None:
        """End the games of `seats` int64 [K]; call it after `earn`."""
        self._decided[seats] = False
        seats = seats[self._trajectory[seats] != NONE]
        trajectories = self._trajectory[seats]
        self._trajectory[seats] = NONE
        self._writer.terminated[self._filled[trajectories] - 1, trajectories] = True
        full = self._filled[trajectories] == self.length
        if full.any():
            # Nothing follows a game's end.
            self._complete_trajectories(trajectories[full], self._spec.after_end((int(full.sum()),)))
            self._empty = np.concatenate([trajectories[full], self._empty])
        self._partial = np.concatenate([self._partial, trajectories[~full]])

    def renew(self, version: int) -> None:
        """Drop trajectories more than `max_age` versions older than `version`, the learning policy's from now on."""
        if self._max_age is None:
            return
        oldest = version - self._max_age
        old = np.flatnonzero((self._filled > 0) & (self._writer.version < oldest))
        # Their games go on, and the next decision begins another trajectory.
        self._trajectory[np.isin(self._trajectory, old)] = NONE
        self._drop(old)
        kept = []
        for chunk in self._complete:
            young = np.flatnonzero(chunk.version >= oldest)
            dropped = chunk.num_slots - len(young)
            self.ready -= dropped
            self._expired += dropped * self.length
            if len(young):
                kept.append(chunk.slots(young) if dropped else chunk)
        self._complete = kept

    def pop_expired(self) -> int:
        """Return how many decisions were dropped since the last call."""
        expired, self._expired = self._expired, 0
        return expired

    def take(self, count: int, episodes: np.ndarray) -> Trajectory:
        """Return the `count` trajectories completed first, a slot each (N = count <= ready), with these `episodes`."""
        taken: list[Trajectory] = []
        missing = count
        while missing:
            chunk = self._complete.pop(0)
            if chunk.num_slots > missing:
                self._complete.insert(0, chunk.slots(slice(missing, None)))
                chunk = chunk.slots(slice(missing))
            taken.append(chunk)
            missing -= chunk.num_slots
        self.ready -= count
        return replace(concatenate(taken), episodes=episodes)

    def clear(self) -> None:
        """Drop every trajectory, complete or not: from now on another player's weights play."""
        self._filled[:] = 0
        self._trajectory[:] = NONE
        self._decided[:] = False
        self._partial, self._empty = np.zeros(0, np.int64), np.arange(len(self._trajectory))
        self._complete.clear()
        self.ready = 0

    def _assign(self, seats: np.ndarray) -> None:
        """Assign a trajectory to each of `seats`: an unfinished one, if any, to seats that begin a game.

        A seat in mid-game whose trajectory was dropped begins a new one, since its memory goes on.
        """
        midway = self._decided[seats]
        short = np.count_nonzero(midway) - len(self._empty)
        if short > 0:
            self._drop(self._partial[:short])
        for which, unfinished in ((seats[midway], self._partial[:0]), (seats[~midway], self._partial)):
            unfinished = unfinished[: len(which)]
            more = len(which) - len(unfinished)
            self._trajectory[which] = np.concatenate([unfinished, self._empty[:more]])
            self._partial, self._empty = self._partial[len(unfinished) :], self._empty[more:]

    def _drop(self, trajectories: np.ndarray) -> None:
        """Empty these trajectories without learning from them, and count their decisions as expired."""
        if trajectories.size:
            self._expired += int(self._filled[trajectories].sum())
            self._filled[trajectories] = 0
            self._partial = self._partial[~np.isin(self._partial, trajectories)]
            self._empty = np.concatenate([self._empty, trajectories])

    def _complete_trajectories(self, trajectories: np.ndarray, last: dict[str, Tree]) -> None:
        """Complete `trajectories`; `last`: observation and value after their last step, [K, ...]."""
        self._complete.append(self._writer.trajectory(last, slots=trajectories))
        self._filled[trajectories] = 0
        self.ready += len(trajectories)
