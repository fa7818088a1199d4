"""Leases in Redis of the cells between frozen players, so that evaluators share the work.

    leases = CellLeases(redis, store.prefix, "evaluator-1", lease=60.0)
    leases.claim([(3, 7), (7, 3)])         # the first that nobody else holds; what was held before is free again
    leases.release()                       # at the end

They only spare work: games of two evaluators that played one cell add up and are as good as those of any one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from league.redis.scripts import Scripts
from league.redis.texts import text
from league.state.fields import milliseconds


class CellLeases:
    """The cell that `holder` plays, for `lease` s from each claim; what a dead holder had is free when that is over."""

    def __init__(self, redis: Any, prefix: str, holder: str, lease: float = 60.0) -> None:
        self.holder, self.lease = holder, lease
        self._scripts = Scripts(redis, prefix)
        self._held = ""

    def claim(self, cells: Sequence[tuple[int, int]]) -> tuple[int, int] | None:
        """Lease and return the first of `cells` that nobody else holds; None when there is none.

        In one round trip, which gives back what was held before.
        """
        if not cells:
            self.release()
            return None
        named = {f"{first}:{second}": (first, second) for first, second in cells}
        taken = self._scripts("cell_claim", self.holder, milliseconds(self.lease), self._held, *named)
        self._held = "" if taken is None else text(taken)
        return named.get(self._held)

    def release(self) -> None:
        """Give back what is held, if anything is."""
        if self._held:
            self._scripts("cell_claim", self.holder, milliseconds(self.lease), self._held)
            self._held = ""
