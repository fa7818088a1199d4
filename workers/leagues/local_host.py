"""Matches of a league in one process: its players ask for them, and report them, without a league service."""

from __future__ import annotations

from typing import TYPE_CHECKING

from league.matchmaking import seat_of
from league.state.league_state import Match
from workers.rollout.games.match_result import MatchResult
from workers.rollout.games.match_scheduler import MatchHost
from workers.rollout.games.seat_map import Opponent

if TYPE_CHECKING:
    from workers.leagues.local import LocalLeague


class LocalHost(MatchHost):
    """Matches of one player of a LocalLeague, kept in the league's own state."""

    def __init__(self, local: LocalLeague, home: str) -> None:
        self._local, self._home = local, home

    def request(self) -> Match:
        """Return the next match."""
        return self._local.league.request(self._home, self._local.opponents)

    def opponent(self, match: Match) -> Opponent:
        """Return the opponents: the player itself, frozen players, or copies that later updates do not change."""
        policy, *others = (None if name == self._home else self._local.opponent(name) for name in match.names[1:])
        return Opponent(match.id, policy, seat=seat_of(match.branch), others=tuple(others))

    def report(self, match: Match, result: MatchResult) -> None:
        """Count the outcomes, or give the match back if nothing was played."""
        if len(result.returns):
            self._local.league.report(match, result.outcomes(self._local.config.series))
        else:
            self._local.league.abort(match)

    def between_moves(self) -> None:
        """Do nothing: within one process no lease runs out."""
