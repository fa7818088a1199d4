"""Players whose weights cannot be loaded: their cells wait while the other players' cells are played."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from agents.policies import Policy
from league.rules.win_rates import Slots
from warren.errors import CheckpointError, PoolError

logger = logging.getLogger(__name__)

AGAIN_AFTER = 180.0  # s until a player is tried again
UNLOADABLE = (CheckpointError, PoolError)


class PassingOver:
    """A `policy_of` that remembers which slots it failed for, and says so once for each."""

    def __init__(self, policy_of: Callable[[int], Policy]) -> None:
        self._policy_of = policy_of
        self._until: dict[int, float] = {}  # by slot, the time at which it is tried again

    def __call__(self, slot: int) -> Policy:
        """Return the policy of the player at `slot`. Raises one of UNLOADABLE."""
        try:
            policy = self._policy_of(slot)
        except UNLOADABLE as error:
            if slot not in self._until:
                logger.warning(
                    "the player at slot %d is not evaluated for some minutes at a time: %s; remove it if that lasts",
                    slot,
                    error,
                )
            self._until[slot] = time.monotonic() + AGAIN_AFTER
            raise
        self._until.pop(slot, None)
        return policy

    def able(self, slots: Slots) -> npt.NDArray[np.bool_]:
        """Return which of `slots` did not fail in the last minutes, (n,)."""
        now = time.monotonic()
        failed = [slot for slot, until in self._until.items() if until > now]
        return ~np.isin(slots, np.array(failed, dtype=np.intp))
