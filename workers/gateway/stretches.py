"""Trajectories of equal length from the decisions of games that come and go: each stretch is T decisions in a row.

An agent's decisions fill a stretch, one after another. If a game ends before its stretch is full, the next game that
begins continues the stretch; of several such stretches the one that has waited longest comes first. So no value flows
past an end, and no stretch waits for long. A decision is written once its outcome is known: when the agent decides
again, or its episode ends. So the last value of a full stretch is known: it is that of the next decision. A game that
goes away is cut off at the observation that it was to act on, whose value is known too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from agents.trajectories import Trajectory, TrajectorySpec, TrajectoryWriter, concatenate
from agents.trees import cast
from warren.trees import Tree, map_tree


@dataclass(slots=True)
class PendingDecision:
    """One decision whose outcome is not known yet."""

    observation: Tree
    action: Tree
    extras: dict[str, Any]  # log_prob, and value if it is asked for
    memory: dict[str, np.ndarray]  # the policy's before the decision, {} if it has none
    version: int
    action_mask: np.ndarray | None = None  # bool [A]


class Stretch:
    """T decisions, of which `filled` are written."""

    __slots__ = ("filled", "writer")

    def __init__(self, spec: TrajectorySpec, length: int) -> None:
        self.filled = 0
        self.writer = TrajectoryWriter(spec, length, slots=1)

    @property
    def version(self) -> int:
        """The version of the oldest weights that decided in it."""
        return int(self.writer.version[0])


class Line:
    """One agent's place in the stretches."""

    __slots__ = ("midway", "stretch")

    def __init__(self) -> None:
        self.stretch: Stretch | None = None  # set: its last row is of the agent's present episode
        self.midway = False  # the episode continues from a stretch that is full


class Stretches:
    """All stretches of a gateway: those being filled, those that wait for a game, those that are complete."""

    def __init__(self, spec: TrajectorySpec, length: int, max_age: int) -> None:
        """`max_age`: weight versions after which waiting stretches are dropped."""
        self.spec, self.length, self._max_age = spec, length, max_age
        self.dropped = 0  # decisions dropped since the last `pop_dropped`
        self._waiting: deque[Stretch] = deque()
        self._complete: deque[Trajectory] = deque()
        self._nothing = spec.after_end(())

    @property
    def ready(self) -> int:
        """Number of complete stretches."""
        return len(self._complete)

    def follow(self, line: Line, decision: PendingDecision, reward: Any, following: PendingDecision) -> None:
        """Write a decision that got `reward` and is followed by another."""
        stretch, row = self._put(line, decision, reward)
        if row + 1 == self.length:
            seen = {"observation": following.observation, "action_mask": following.action_mask}
            self._finish(line, stretch, {**seen, **following.extras})

    def end(self, line: Line, decision: PendingDecision, reward: Any, cut: Mapping[str, Any] | None = None) -> None:
        """Write a decision that got `reward` and ended the agent's episode.

        `cut`: the data about the observation at which it was cut off, as the spec asks; None if it truly ended.
        """
        stretch, row = self._put(line, decision, reward)
        self._close(line, stretch, row, cut)

    def cut_off(self, line: Line, cut: Mapping[str, Any]) -> None:
        """Cut off an episode after its last written decision: its game went away; `cut` is as in `end`."""
        if (stretch := line.stretch) is not None:
            self._close(line, stretch, stretch.filled - 1, cut)

    def renew(self, version: int) -> None:
        """Drop waiting stretches that are too old for weights of `version`, which play from now on."""
        oldest = version - self._max_age
        if any(stretch.version < oldest for stretch in self._waiting):
            self.dropped += sum(stretch.filled for stretch in self._waiting if stretch.version < oldest)
            self._waiting = deque(stretch for stretch in self._waiting if stretch.version >= oldest)

    def drop_oldest(self, count: int) -> None:
        """Drop the `count` oldest complete stretches, which were not taken in time."""
        for _ in range(count):
            self._complete.popleft()
        self.dropped += count * self.length

    def pop_dropped(self) -> int:
        """Return how many decisions were dropped since the last call."""
        dropped, self.dropped = self.dropped, 0
        return dropped

    def clear(self) -> None:
        """Drop all stretches; those that are being filled must not be written to any more."""
        self._waiting.clear()
        self._complete.clear()

    def take(self, count: int, episodes: np.ndarray) -> Trajectory:
        """Return the `count` <= ready stretches that were completed first, a slot each, with these `episodes`."""
        return replace(concatenate([self._complete.popleft() for _ in range(count)]), episodes=episodes)

    def _put(self, line: Line, decision: PendingDecision, reward: Any) -> tuple[Stretch, int]:
        stretch = line.stretch
        if stretch is None:
            # An episode that goes on midway has a memory, which is stored only at the beginning of a stretch.
            fresh = line.midway or not self._waiting
            stretch = line.stretch = Stretch(self.spec, self.length) if fresh else self._waiting.popleft()
        row, writer = stretch.filled, stretch.writer
        if row == 0:
            writer.start(0, decision.memory, decision.version)
        np.minimum(writer.version, decision.version, out=writer.version)
        writer.decide((row, 0), decision.observation, decision.action, decision.extras, decision.action_mask)
        writer.follow((row, 0), reward)
        stretch.filled += 1
        return stretch, row

    def _close(self, line: Line, stretch: Stretch, row: int, cut: Mapping[str, Any] | None) -> None:
        """End the episode at `row`, the last row that is written."""
        if cut is None:
            stretch.writer.terminated[row] = True
        else:
            stretch.writer.truncated[row] = True
            stretch.writer.cut_off((row, 0), cut)
        if row + 1 == self.length:
            self._finish(line, stretch, self._nothing)  # nothing follows an end
        else:
            self._waiting.append(stretch)
        line.stretch, line.midway = None, False

    def _finish(self, line: Line, stretch: Stretch, last: dict[str, Tree]) -> None:
        last = map_tree(lambda part: part[None], cast(self.spec.last, last))
        self._complete.append(stretch.writer.trajectory(last))
        line.stretch, line.midway = None, True
