"""A sampler's tables, each always in a match that the league issued: who comes next, and what is reported when."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from agents.policies import Policy
from agents.segments import Segment
from league.state.league_state import Match
from warren.errors import PlayerWaits
from workers.rollout.match_result import MatchResult
from workers.rollout.selfplay_sampler import MatchSampler, Opponent

Request = Callable[[], Match | None]  # asks the league for the next match; None: go on with the one there is
Report = Callable[[Match, MatchResult], None]  # tells it the games of one that is over; there may be none
Opponents = Callable[[Match], Policy | None]  # who plays the away side; None: the learning policy itself


class Matches:
    """Keeps the tables of `sampler` in matches of at least `match_games` games.

    A match is over once it has that many games and all games begun in it have ended; the table's next match begins
    while the last of them are still being played.
    """

    def __init__(
        self, sampler: MatchSampler, match_games: int, request: Request, report: Report, opponents: Opponents
    ) -> None:
        self.sampler = sampler
        self._match_games = match_games
        self._request, self._report, self._opponents = request, report, opponents
        self._open: dict[str, tuple[Match, list[np.ndarray]]] = {}
        self._tables: list[str] = []  # the match of each, by id
        self._anew = False  # a restart is due
        self._seat_all()

    def collect(self, num_lanes: int) -> Segment:
        """The sampler's next segment; matches that ended meanwhile are reported, and followed by others.

        Raises what `request`, `report` and `opponents` raise; the next call goes on from there.
        """
        if self._anew:
            self.leave()
            self._tables.clear()
            self.sampler.restart()
            self._anew = False
        self._seat_all()
        while self.sampler.ready < num_lanes:
            if self.sampler.advance():
                self._follow()
        return self.sampler.take(num_lanes)

    def restart(self) -> None:
        """The learning policy has become another one: the next `collect` reports what was played and begins anew.

        Not at once: the league may be away, or the player paused, and a restart that was made by half is none.
        """
        self._anew = True

    @property
    def held(self) -> list[str]:
        """Ids of the matches that were issued and have not been reported."""
        return list(self._open)

    def leave(self) -> None:
        """Report what was played so far of every match."""
        self._take_results()
        for match in list(self._open):
            self._close(match)

    def _seat_all(self) -> None:
        for table in range(len(self._tables), self.sampler.num_tables):
            match = self._request()
            if match is None:
                raise PlayerWaits("a table without a match was given none: its player is paused")
            self._tables.append(self._seat(table, match))

    def _take_results(self) -> None:
        for result in self.sampler.pop_results():
            self._open[str(result.opponent)][1].append(result.returns)

    def _follow(self) -> None:
        self._take_results()
        for table, match in enumerate(self._tables):
            if sum(map(len, self._open[match][1])) >= self._match_games:
                following = self._request()
                if following is not None:
                    self._tables[table] = self._seat(table, following)
        for match in self._open.keys() - self.sampler.in_play():
            self._close(match)

    def _seat(self, table: int, match: Match) -> str:
        self._open[match.match] = (match, [])
        self.sampler.seat(table, Opponent(match.match, self._opponents(match)))
        return match.match

    def _close(self, match: str) -> None:
        issued, returns = self._open[match]
        self._report(issued, MatchResult(match, np.concatenate([*returns, np.zeros(0, np.float32)])))
        del self._open[match]  # not before: a report that failed is made again
