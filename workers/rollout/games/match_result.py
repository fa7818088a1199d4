"""MatchResult: returns of games against one opponent."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np

from league.rules.win_rates import outcomes_of
from workers.rollout.games.game_log import PlayedGame


@dataclass(frozen=True)
class MatchResult:
    """K games of a home player against one opponent, oldest first; both seats are in it, equally often in the long run.

    The league's matchmaking counts outcomes: who won. Between near equals in poker, chance decides a single game, so
    outcomes may be of series of games instead: won by whoever gained more over the whole series.
    """

    opponent: Hashable  # the opponent's tag
    returns: np.ndarray  # float32 [K], of the home player
    games: tuple[PlayedGame, ...] = ()  # in the same order, where the match is recorded

    def outcomes(self, series: int = 1) -> str:
        """Return "w", "d" or "l" of the home player per `series` games, as the league's payoff counts them."""
        return outcomes_of(self.returns, series)
