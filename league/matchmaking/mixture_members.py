"""The players that a league's mixture plays if it plays no exploiters (league.mixture_exploiters=false)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from league.matchmaking.base import KINDS
from league.matchmaking.view import Roster
from league.rules.win_rates import Slots


def played(roster: Roster, slots: Slots) -> NDArray[np.bool_]:
    """Return which of the players at `slots` (n,) are not frozen exploiters, (n,) bool; all if all are exploiters."""
    exploiting = frozenset(name for name in KINDS if KINDS[name].exploits)
    found = ~np.isin(slots, roster.frozen_of_kinds(exploiting))
    return found if found.any() else ~found
