"""Leases in Redis of the cells between frozen players, so that evaluators share the work.

    leases = CellLeases(redis, store.prefix, "evaluator-1", lease=60.0)
    leases.claim([(3, 7), (7, 3)])         # the first that no other evaluator holds; frees the one held before
    leases.release()                       # at the end

Leases only save work: if two evaluators play one cell, their games add up and are as good as those of one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from league.redis.scripts import Scripts
from league.redis.texts import text
from league.state.fields import milliseconds


class CellLeases:
    """The cell that `holder` plays, leased for `lease` s from each claim; a dead holder's cell is free after that."""

    def __init__(self, redis: Any, prefix: str, holder: str, lease: float = 60.0) -> None:
        self.holder, self.lease = holder, lease
        self._scripts = Scripts(redis, prefix)
        self._held = ""

    def claim(self, cells: Sequence[tuple[int, int]]) -> tuple[int, int] | None:
        """Lease and return the first of `cells` that no other evaluator holds; None if all are held.

        This takes one round trip, which also frees the cell held before.
        """
        if not cells:
            self.release()
            return None
        named = {f"{first}:{second}": (first, second) for first, second in cells}
        taken = self._scripts("cell_claim", self.holder, milliseconds(self.lease), self._held, *named)
        self._held = "" if taken is None else text(taken)
        return named.get(self._held)

    def release(self) -> None:
        """Free the cell that is held, if any."""
        if self._held:
            self._scripts("cell_claim", self.holder, milliseconds(self.lease), self._held)
            self._held = ""
