"""From many games in turns to time-major arrays: each trajectory is so many decisions of one seat of one game slot.

A seat decides when it is its turn, so games that are stepped together do not decide together, and rows of a [T, N]
array cannot be moments. They are decisions instead: a trajectory is filled by one seat's decisions in a game, one after
another, then by those of another game. The reward at a decision is all that its seat gets until its next one; a game
that ends sets `terminated` at the seat's last decision in it. A trajectory of T decisions is complete once the outcome
of its last one is known: when the game has ended, or when the seat is to decide again, whose value is the last
one of the trajectory. Complete trajectories are the slots of a Trajectory, and GAE runs down them as down any column.

A trajectory belongs to a seat for one game. What a game's end leaves unfinished is filled up by the next game that
begins, in whatever slot and seat, the longest waiting first: nothing flows past a game's end, and no decisions wait out
long games in which their seat does not decide, until they are too old to learn from.
"""

from __future__ import annotations

import numpy as np

from agents.trajectories import Trajectory

NONE = -1  # no trajectory
# Complete trajectories by name: [T, K, ...]; last_observation, last_value and version [K, ...].
_Chunk = dict[str, np.ndarray]


class TrajectoryBuffer:
    """Trajectories of `seats` seats, each `length` decisions long; complete ones wait until they are taken.

    `max_age`: weight versions after which a trajectory is dropped, counted from the one that began it (see `renew`).
    """

    def __init__(
        self,
        seats: int,
        length: int,
        observation_shape: tuple[int, ...],
        num_actions: int,
        max_age: int | None = None,
    ) -> None:
        self.length = length
        self.ready = 0  # complete trajectories
        self._max_age = max_age
        self._expired = 0  # decisions
        # As many trajectories as seats: in every game that goes on, each seat may hold one.
        self._trajectory = np.full(seats, NONE)  # [seats]: the trajectory of each seat that has decided in its game
        self._filled = np.zeros(seats, np.int64)  # [trajectories]: decisions in it
        self._version = np.zeros(seats, np.int64)  # [trajectories]: of the weights that began it
        self._partial = np.zeros(0, np.int64)  # trajectories of no seat that hold decisions, the longest waiting first
        self._empty = np.arange(seats)  # trajectories of no seat that hold none
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
        self._assign(seats[self._trajectory[seats] == NONE])
        trajectories = self._trajectory[seats]
        full = self._filled[trajectories] == self.length
        if full.any():
            self._complete_trajectories(trajectories[full], observation[full], value[full])
        rows = self._filled[trajectories]
        self._version[trajectories] = np.where(rows == 0, version, self._version[trajectories])
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
            self._columns[name][rows, trajectories] = values
        self._filled[trajectories] += 1

    def earn(self, reward: np.ndarray) -> None:
        """Rewards of all seats, float32 [seats]; what a seat gets before its first decision in a game is nobody's."""
        seats = np.flatnonzero(self._trajectory != NONE)
        trajectories = self._trajectory[seats]
        self._columns["reward"][self._filled[trajectories] - 1, trajectories] += reward[seats]

    def end(self, seats: np.ndarray) -> None:
        """The games of `seats` int64 [K] are over; call it after `earn`."""
        seats = seats[self._trajectory[seats] != NONE]
        trajectories = self._trajectory[seats]
        self._trajectory[seats] = NONE
        self._columns["terminated"][self._filled[trajectories] - 1, trajectories] = True
        full = self._filled[trajectories] == self.length
        if full.any():
            # Nothing follows a game's end.
            nothing = np.zeros((np.count_nonzero(full), *self._columns["observation"].shape[2:]), np.float32)
            self._complete_trajectories(trajectories[full], nothing, np.zeros(len(nothing), np.float32))
            self._empty = np.concatenate([trajectories[full], self._empty])
        self._partial = np.concatenate([self._partial, trajectories[~full]])

    def renew(self, version: int) -> None:
        """The learning policy is at `version` from now on: what is older than `max_age` by then is dropped."""
        if self._max_age is None:
            return
        oldest = version - self._max_age
        old = np.flatnonzero((self._filled > 0) & (self._version < oldest))
        if old.size:
            self._expired += int(self._filled[old].sum())
            self._filled[old] = 0
            self._trajectory[np.isin(self._trajectory, old)] = (
                NONE  # games go on, and their next decision begins a trajectory
            )
            self._partial = self._partial[~np.isin(self._partial, old)]
            self._empty = np.concatenate([self._empty, old])
        kept = []
        for chunk in self._complete:
            young = np.flatnonzero(chunk["version"] >= oldest)
            dropped = len(chunk["version"]) - len(young)
            self.ready -= dropped
            self._expired += dropped * self.length
            if len(young):
                kept.append(_trajectories_of(chunk, young) if dropped else chunk)
        self._complete = kept

    def pop_expired(self) -> int:
        """Decisions dropped by `renew` since the last call."""
        expired, self._expired = self._expired, 0
        return expired

    def take(self, count: int, episodes: np.ndarray) -> Trajectory:
        """The `count` trajectories completed first, a slot each (N = count <= ready), with these `episodes`."""
        taken: list[_Chunk] = []
        missing = count
        while missing:
            chunk = self._complete.pop(0)
            size = len(chunk["version"])
            if size > missing:
                self._complete.insert(0, _trajectories_of(chunk, slice(missing, size)))
                chunk, size = _trajectories_of(chunk, slice(missing)), missing
            taken.append(chunk)
            missing -= size
        self.ready -= count
        joined = {
            name: np.concatenate([chunk[name] for chunk in taken], axis=0 if name in _FLAT else 1) for name in taken[0]
        }
        # A game that is cut off counts as decided by what was earned: nobody can say what it would have become.
        never = np.zeros(joined["reward"].shape, np.bool_)
        nothing = np.zeros(never.shape, np.float32)
        return Trajectory(
            observation=joined["observation"],
            action=joined["action"],
            reward=joined["reward"],
            terminated=joined["terminated"],
            truncated=never,
            extras={"log_prob": joined["log_prob"], "value": joined["value"]},
            last={"observation": joined["last_observation"], "value": joined["last_value"]},
            cut={"value": nothing},
            version=joined["version"],
            episodes=episodes,
            action_mask=joined["action_mask"],
        )

    def clear(self) -> None:
        """Drop every trajectory, complete or not: another player's weights go on from here."""
        self._filled[:] = 0
        self._trajectory[:] = NONE
        self._partial, self._empty = np.zeros(0, np.int64), np.arange(len(self._trajectory))
        self._complete.clear()
        self.ready = 0

    def _assign(self, seats: np.ndarray) -> None:
        """A trajectory to each of `seats`, which begin a game, or go on with one whose trajectory was dropped."""
        unfinished = self._partial[: len(seats)]
        more = len(seats) - len(unfinished)
        self._trajectory[seats] = np.concatenate([unfinished, self._empty[:more]])
        self._partial, self._empty = self._partial[len(unfinished) :], self._empty[more:]

    def _complete_trajectories(self, trajectories: np.ndarray, observation: np.ndarray, value: np.ndarray) -> None:
        """`observation` and `value` of what follows the last step."""
        chunk = {name: column[:, trajectories] for name, column in self._columns.items()}
        last = {"last_observation": observation.astype(np.float32), "last_value": value}
        self._complete.append({**chunk, **last, "version": self._version[trajectories]})
        self._filled[trajectories] = 0
        self.ready += len(trajectories)


_FLAT = ("last_observation", "last_value", "version")


def _trajectories_of(chunk: _Chunk, trajectories: slice | np.ndarray) -> _Chunk:
    return {name: values[trajectories] if name in _FLAT else values[:, trajectories] for name, values in chunk.items()}
