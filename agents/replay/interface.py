"""The interface of a replay's buffer: the methods that a buffer has, and the options that it is made with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from agents.trajectories import Trajectory
from warren.errors import ConfigurationError


def _none() -> np.ndarray:
    return np.zeros(0, np.int64)


@dataclass(frozen=True)
class Draw:
    """Drawn sequences: one Trajectory [length, n], with `weights` where it was by priority.

    `items` int64 [n]: their numbers; `counted` int64 [n]: the numbers of their rows since the beginning, which tell
    whether they are still there. Only the buffer that made a Draw reads these two.
    """

    trajectory: Trajectory
    items: np.ndarray = field(default_factory=_none)
    counted: np.ndarray = field(default_factory=_none)
    weights: np.ndarray | None = None


@dataclass(frozen=True)
class BufferOptions:
    """The options of a buffer, by the settings `replay.*` and the algorithm's needs.

    `capacity`: steps to keep. `length`: steps of a sequence. `priority_exponent`: None where draws are not by priority.
    `in_memory`: bytes; the rest goes into files in `folder`, which is made when it is needed. `groups`: the sequences
    of all slots of a group are drawn together. `unrolls`: sequences may begin at any step, not only where an agent
    decided.
    """

    capacity: int
    length: int = 1
    priority_exponent: float | None = None
    seed: int = 0
    in_memory: int | None = None
    folder: Path | None = None
    groups: bool = False
    unrolls: bool = False


class Buffer(Protocol):
    """A store of segments, from which each update draws sequences; ReplayBuffer is the built-in one.

    A user's own needs `set_priorities` only for algorithms that draw by priority, `together` only for those that learn
    from groups, and `state` with `load_state` only with replay.in_checkpoint=true.
    """

    @property
    def startable(self) -> int:
        """Return the number of sequences that may be drawn; while it is 0, none are."""
        ...

    @property
    def together(self) -> int:
        """Return the number of slots that are drawn as one: those of a group, else 1."""
        ...

    def __len__(self) -> int:
        """Return the number of steps that are kept."""
        ...

    def add(self, trajectory: Trajectory, source: str, number: int) -> None:
        """Copy a segment, the `number`-th of the stream `source`; an array that is kept itself keeps shared memory."""
        ...

    def draw(self, count: int, weight_exponent: float) -> Draw:
        """Draw `count` sequences: a Trajectory [length, count * together] whose steps follow each other.

        `weight_exponent`: of the importance weights where draws are by priority.
        """
        ...

    def set_priorities(self, draw: Draw, priorities: np.ndarray) -> None:
        """Take the priorities, float [count * together], of what was drawn last."""
        ...

    def state(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Return (arrays by name, the rest as JSON can hold it): all that a resumed run needs."""
        ...

    def load_state(self, arrays: Mapping[str, np.ndarray], meta: Mapping[str, Any]) -> None:
        """Take over what `state` returned. Raises CheckpointError for a state that does not fit."""
        ...


def checked_priorities(priorities: np.ndarray, slots: int) -> np.ndarray:
    """Return the priorities of an update as float64 [slots].

    Raises ConfigurationError for priorities that are not `slots` finite numbers of at least 0.
    """
    given = np.asarray(priorities, np.float64)
    if given.shape != (slots,) or not (np.isfinite(given) & (given >= 0)).all():
        raise ConfigurationError(
            f"the priorities of an update must be [{slots}] finite numbers of at least 0, one for each "
            f"slot of its batch; they are {list(given.shape)}, from {given.min():g} to {given.max():g}"
            if given.size
            else f"the priorities of an update must be [{slots}] numbers; there are none"
        )
    return given
