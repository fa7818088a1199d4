"""From many games in turns to time-major segments: lanes, each so many decisions in a row of one seat of one game slot.

A seat decides when it is its turn, so games that are stepped together do not decide together, and rows of a [T, N]
array cannot be moments. They are decisions instead: a lane is filled by one seat's decisions, one after another, over
the games that follow each other in its slot. The reward at a decision is all that its seat gets until its next one; a
game that ends sets `terminated` at the seat's last decision in it. A lane of T decisions is complete once the outcome
of its last one is known: when the game has ended, or when the seat is to decide again, whose value is the lane's
bootstrap value. Complete lanes are the columns of segments, and GAE runs down them as down any column.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from agents.segments import Segment

_Chunk = dict[str, np.ndarray]  # complete lanes by field of Segment: [T, K, ...], bootstrap_value and version [K]


class Lanes:
    """Lanes of `seats` seats, each `length` decisions long; complete ones wait until they are taken."""

    def __init__(self, seats: int, length: int, observation_shape: tuple[int, ...], num_actions: int) -> None:
        self.length = length
        self.ready = 0  # complete lanes
        self._filled = np.zeros(seats, np.int64)  # decisions in each seat's lane
        self._in_game = np.zeros(seats, np.bool_)  # whether the lane's last decision is of the game under way
        self._version = np.zeros(seats, np.int64)  # of the weights that began the lane
        shape = (length, seats)
        self._columns: dict[str, np.ndarray] = {
            "observation": np.zeros((*shape, *observation_shape), np.float32),
            "action_mask": np.zeros((*shape, num_actions), np.bool_),
            "action": np.zeros(shape, np.int64),
            "log_prob": np.zeros(shape, np.float32),
            "value": np.zeros(shape, np.float32),
            "reward": np.zeros(shape, np.float32),
            "terminated": np.zeros(shape, np.bool_),
        }
        self._complete: list[_Chunk] = []

    def decide(
        self,
        seats: np.ndarray,
        observation: np.ndarray,
        action_mask: np.ndarray,
        action: np.ndarray,
        log_prob: np.ndarray,
        value: np.ndarray,
        version: int,
    ) -> None:
        """Decisions of `seats` int64 [K], no seat twice; the rest [K, ...] as Policy.act takes and returns them."""
        full = self._filled[seats] == self.length
        if full.any():
            self._complete_lanes(seats[full], value[full])
        rows = self._filled[seats]
        self._version[seats] = np.where(rows == 0, version, self._version[seats])
        written = {
            "observation": observation,
            "action_mask": action_mask,
            "action": action,
            "log_prob": log_prob,
            "value": value,
            "reward": 0.0,
            "terminated": False,
        }
        for name, values in written.items():
            self._columns[name][rows, seats] = values
        self._filled[seats] += 1
        self._in_game[seats] = True

    def earn(self, reward: np.ndarray) -> None:
        """Rewards of all seats, float32 [seats]; what a seat gets before its first decision in a game is nobody's."""
        seats = np.flatnonzero(self._in_game)
        self._columns["reward"][self._filled[seats] - 1, seats] += reward[seats]

    def end(self, seats: np.ndarray) -> None:
        """The games of `seats` int64 [K] are over; call it after `earn`."""
        seats = seats[self._in_game[seats]]
        self._columns["terminated"][self._filled[seats] - 1, seats] = True
        self._in_game[seats] = False
        full = seats[self._filled[seats] == self.length]
        if full.size:
            self._complete_lanes(full, np.zeros(full.size, np.float32))

    def take(self, count: int, episodes: np.ndarray) -> Segment:
        """A segment of the `count` lanes that were complete first (N = count <= ready), with these `episodes`."""
        taken: list[_Chunk] = []
        missing = count
        while missing:
            chunk = self._complete.pop(0)
            size = len(chunk["version"])
            if size > missing:
                self._complete.insert(0, _lanes_of(chunk, slice(missing, size)))
                chunk, size = _lanes_of(chunk, slice(missing)), missing
            taken.append(chunk)
            missing -= size
        self.ready -= count
        joined: dict[str, Any] = {
            name: np.concatenate([chunk[name] for chunk in taken], axis=0 if name in _FLAT else 1) for name in taken[0]
        }
        version = int(joined.pop("version").min())
        # A game that is cut off counts as decided by what was earned: nobody can say what it would have become.
        never = np.zeros(joined["reward"].shape, np.bool_)
        nothing = np.zeros(never.shape, np.float32)
        return Segment(**joined, truncated=never, final_value=nothing, weight_version=version, episodes=episodes)

    def clear(self) -> None:
        """Drop every lane, complete or not: another player's weights go on from here."""
        self._filled[:] = 0
        self._in_game[:] = False
        self._complete.clear()
        self.ready = 0

    def _complete_lanes(self, seats: np.ndarray, bootstrap_value: np.ndarray) -> None:
        chunk = {name: column[:, seats] for name, column in self._columns.items()}
        self._complete.append({**chunk, "bootstrap_value": bootstrap_value, "version": self._version[seats]})
        self._filled[seats] = 0
        self.ready += len(seats)


_FLAT = ("bootstrap_value", "version")


def _lanes_of(chunk: _Chunk, lanes: slice) -> _Chunk:
    return {name: values[lanes] if name in _FLAT else values[:, lanes] for name, values in chunk.items()}
