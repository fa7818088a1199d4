"""PlayerHost: matches of one learning player, issued by the league to this actor."""

from __future__ import annotations

import logging
from collections.abc import Callable

from agents.checkpoints import fingerprint
from agents.policies import Policy
from league.matchmaking import seat_of
from league.matchmaking.view import ModelRef
from league.state.league_state import Match
from warren.errors import PlayerUnavailable
from workers.config.league import LeagueConfig
from workers.leagues.client import LeagueClient
from workers.leagues.known_players import KnownPlayers
from workers.leagues.recording import MatchRecorder
from workers.rollout.games.game_log import Weights
from workers.rollout.games.match_result import MatchResult
from workers.rollout.games.match_scheduler import MatchHost
from workers.rollout.games.seat_map import Opponent

logger = logging.getLogger(__name__)

OTHERS = 8  # matches in a row that may be given back because a player has no weights


class PlayerHost(MatchHost):
    """Requests the matches of `home`, finds the policies of their opponents, and reports the results."""

    def __init__(
        self,
        home: str,
        league: LeagueConfig,
        client: LeagueClient,
        players: KnownPlayers,
        recorder: MatchRecorder,
        between_moves: Callable[[], None],
        opponents: int = 1,
    ) -> None:
        """Make the host of `home` in games against `opponents` opponents."""
        self._home, self._league, self._client = home, league, client
        self._players, self._recorder, self._between_moves = players, recorder, between_moves
        self._opponents = opponents
        self._models: dict[str, tuple[ModelRef | None, ...]] = {}  # models of matches that were issued but not begun
        self._refused = 0  # games whose result the league refused

    def request(self) -> Match:
        """Return the next match.

        Raises what the league raises, and PlayerUnavailable while new weights of a reset player are on their way, or
        after OTHERS matches in a row with a player that has none.
        """
        absent = 0
        while True:
            invitation = self._client.request(self._home, self._league.lease, self._opponents)
            match = invitation.match
            try:
                fits = self._players.fits(match)
            except PlayerUnavailable:  # the opponent's learner cannot start, for example: try another opponent
                self._client.abort(match)
                absent += 1
                if absent == OTHERS:
                    raise
                continue
            if not fits:
                self._client.abort(match)
                names = " or ".join(dict.fromkeys(match.names))
                raise PlayerUnavailable(f"{names} was reset; its new weights have not arrived yet")
            self._models[match.id] = invitation.models
            return match

    def opponent(self, match: Match) -> Opponent:
        """Return the opponents of a requested match; they keep the same weights to its end."""
        models = self._models.pop(match.id)
        policy, *others = self._players.opponents(match, models)
        self._recorder.begins(match, lambda: self._away(match, models[0], policy))
        return Opponent(match.id, policy, self._recorder.wants(match), seat_of(match.branch), tuple(others))

    def report(self, match: Match, result: MatchResult) -> None:
        """Report a match that is over to the league and, if its result counts, to the recorder."""
        if not len(result.returns):
            self._client.abort(match)
            return
        outcomes, expected = result.outcomes(self._league.series), self._recorder.expected(match)
        status, reason = self._client.report(match, outcomes)
        if status == "counted":
            self._recorder.counted(match, result, outcomes, expected)
        if status == "refused":
            self._refused += len(result.returns)
            logger.warning(
                "the league refused the result of match %s as %s; %d games of %s were played for nothing so far: if "
                "more come late, raise league.lease, now %g s", match.id, reason, self._refused, self._home,
                self._league.lease,
            )  # fmt: skip

    def between_moves(self) -> None:
        """Extend the leases of the matches under way."""
        self._between_moves()

    def _away(self, match: Match, model: ModelRef | None, policy: Policy | None) -> Weights | None:
        if policy is None:
            return None
        ref = model or ModelRef(match.away, self._players[match.away].version)
        return Weights(ref.player, ref.version, fingerprint(policy))
