"""Which trajectory an update failed on, so that those beside it are learned from all the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from agents.trajectories import Trajectory

Update = Callable[[Sequence[Trajectory]], Any]


def faulty(trajectories: Sequence[Trajectory], new_update: Callable[[], Update]) -> dict[int, Exception]:
    """Index -> what is wrong with it, of the trajectories that an update of all has failed on: those that fail alone.

    `new_update` gives the update of a learner like the one that failed, with weights that nobody uses. Empty where all
    fail alone, or none does: then the failure is not one trajectory's.
    """
    found: dict[int, Exception] = {}
    for index, trajectory in enumerate(trajectories if len(trajectories) > 1 else ()):
        try:
            new_update()([trajectory])
        except Exception as error:
            found[index] = error
    return found if len(found) < len(trajectories) else {}
