"""Search for the trajectories that an update failed on, so that the others can be learned from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from agents import Batch, Trajectory

Update = Callable[[Batch], Any]


def faulty(trajectories: Sequence[Trajectory], new_update: Callable[[], Update]) -> dict[int, Exception]:
    """Return index -> error of the trajectories that fail alone, after an update on all of them has failed.

    `new_update` returns the update function of a copy of the failed learner, whose weights are not used. The result is
    empty if all fail alone or none does: then no single trajectory is the cause.
    """
    found: dict[int, Exception] = {}
    for index, trajectory in enumerate(trajectories if len(trajectories) > 1 else ()):
        try:
            new_update()(Batch([trajectory]))
        except Exception as error:
            found[index] = error
    return found if len(found) < len(trajectories) else {}
