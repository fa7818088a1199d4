"""MatchResult: returns of games against one opponent, or several."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

import numpy as np

from league.rules.win_rates import outcomes_of, placements_of
from workers.rollout.games.game_log import PlayedGame


@dataclass(frozen=True)
class MatchResult:
    """K games of a home player against one opponent, oldest first; it has each seat equally often in the long run.

    The league's matchmaking counts outcomes: who won. Between near equals in poker, chance decides a single game. So an
    outcome may be that of a series of games: the player that gained more over the whole series has won.
    """

    opponent: Hashable  # the opponent's tag
    returns: np.ndarray  # float32 [K], of the home player
    games: tuple[PlayedGame, ...] = ()  # in the same order, if the match is recorded
    # Returns [K, T - 1] of the other teams, if there are more than two teams.
    others: np.ndarray = field(default_factory=lambda: np.zeros((0, 0), np.float32))

    @classmethod
    def joined(cls, opponent: Hashable, results: Sequence[MatchResult]) -> MatchResult:
        """Return all games of `results` as one result, which holds no games if there are none."""
        if not results:
            return cls(opponent, np.zeros(0, np.float32))
        returns, others = ([getattr(one, name) for one in results] for name in ("returns", "others"))
        games = tuple(game for one in results for game in one.games)
        return cls(opponent, np.concatenate(returns), games, np.concatenate(others))

    def outcomes(self, series: int = 1) -> str:
        """Return "w", "d" or "l" of the home player per `series` games, as the league's payoff counts them.

        For more than two teams, return the place of each, from 0, in the order of the match.
        """
        if self.others.shape[1]:
            return placements_of(np.column_stack([self.returns, self.others]), series)
        return outcomes_of(self.returns, series)
