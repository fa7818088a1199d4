"""Matches of a league in one process: its players ask for them, and report them, without a league service."""

from __future__ import annotations

from collections.abc import Callable

from agents.policies import Policy
from league.matchmaking import seat_of
from league.state.in_memory import MemoryLeague
from league.state.league_state import Match
from workers.rollout.games.match_result import MatchResult
from workers.rollout.games.match_scheduler import MatchHost
from workers.rollout.games.seat_map import Opponent


class LocalHost(MatchHost):
    """Matches of the player `home`, against `opponents` others each, kept in the league's own state.

    `policy_of` returns a policy, which stays as it is, by the player's name. `series` games in a row are one result.
    """

    def __init__(
        self, league: MemoryLeague, home: str, opponents: int, policy_of: Callable[[str], Policy], series: int
    ) -> None:
        self._league, self._home, self._opponents = league, home, opponents
        self._policy_of, self._series = policy_of, series

    def request(self) -> Match:
        """Return the next match."""
        return self._league.request(self._home, self._opponents)

    def opponent(self, match: Match) -> Opponent:
        """Return the opponents: the player itself, frozen players, or copies that later updates do not change."""
        policy, *others = (None if name == self._home else self._policy_of(name) for name in match.names[1:])
        return Opponent(match.id, policy, seat=seat_of(match.branch), others=tuple(others))

    def report(self, match: Match, result: MatchResult) -> None:
        """Count the outcomes, or give the match back if nothing was played."""
        if len(result.returns):
            self._league.report(match, result.outcomes(self._series))
        else:
            self._league.abort(match)

    def between_moves(self) -> None:
        """Do nothing: within one process no lease runs out."""
