"""A sampler's tables, each always in a match that the league issued: who comes next, and what is reported when."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping

import numpy as np
from torch import Tensor

from agents.policies import Policy
from agents.trajectories import Trajectory
from league.state.league_state import Match
from warren.errors import PlayerUnavailable
from workers.rollout.match_result import MatchResult
from workers.rollout.selfplay_sampler import MatchSampler, Opponent

Request = Callable[[], Match]  # asks the league for the next match; PlayerUnavailable: there is none for now
Report = Callable[[Match, MatchResult], None]  # tells it the games of one that is over; there may be none
Opponents = Callable[[Match], Policy | None]  # who plays the away side; None: the learning policy itself
Recorded = Callable[[Match], bool]  # whether the games of a match are kept with its result
Between = Callable[[], None]  # called between moves


class Matches:
    """A Sampler that keeps the tables of `sampler` in matches of at least `match_games` games.

    A match is over once it has that many games and all games begun in it have ended; the table's next match begins
    while the last of them are still being played.
    """

    def __init__(
        self,
        sampler: MatchSampler,
        match_games: int,
        request: Request,
        report: Report,
        opponents: Opponents,
        between: Between = lambda: None,
        recorded: Recorded = lambda match: False,
    ) -> None:
        self.sampler = sampler
        self._match_games = match_games
        self._request, self._report, self._opponents, self._between = request, report, opponents, between
        self._recorded = recorded
        self._open: dict[str, tuple[Match, list[MatchResult]]] = {}
        self._tables: list[str] = []  # the match of each, by id
        self._lost: set[str] = set()  # open here, and no longer in the league
        self._anew = False  # a restart is due

    @property
    def policy(self) -> Policy:
        """The learning policy."""
        return self.sampler.policy

    @property
    def version(self) -> int:
        """Of its weights."""
        return self.sampler.version

    def load(self, weights: Mapping[str, Tensor], version: int, behaviour: Mapping[str, float] | None = None) -> None:
        """As Sampler.load."""
        self.sampler.load(weights, version, behaviour)

    def collect(self, budget: int) -> Trajectory:
        """What the sampler collects next; matches that ended meanwhile are reported, and followed by others.

        Raises what `request`, `report`, `opponents` and `between` raise; the next call goes on from there.
        PlayerUnavailable only while a table has no match yet: later it plays on in the one that it has.
        """
        while True:
            if self._anew:
                self.leave()
                self._tables.clear()
                self.sampler.restart()
                self._anew = False
            self._seat_all()
            if self.sampler.ready >= budget:
                return self.sampler.take(budget)
            self._between()
            if self.sampler.advance():
                self._follow()

    def restart(self) -> None:
        """The learning policy has become another one: `collect` reports what was played and begins anew.

        The one under way does so too, which may be when it learns of it: what it returns is of one policy. Not at once:
        while the league is away or the player paused, a restart would fail halfway.
        """
        self._anew = True

    @property
    def held(self) -> list[str]:
        """Ids of the matches that were issued and have not been reported."""
        return [match for match in self._open if match not in self._lost]

    def lose(self, matches: Iterable[str]) -> None:
        """Their leases have run out: no result of theirs counts any more, so their tables get others."""
        self._lost |= self._open.keys() & set(matches)

    def leave(self) -> None:
        """Report what was played so far of every match."""
        self._take_results()
        for match in list(self._open):
            self._close(match)

    def _seat_all(self) -> None:
        for table in range(len(self._tables), self.sampler.num_tables):
            self._tables.append(self._seat(table, self._request()))

    def _take_results(self) -> None:
        for result in self.sampler.pop_results():
            self._open[str(result.opponent)][1].append(result)

    def _follow(self) -> None:
        self._take_results()
        for table, match in enumerate(self._tables):
            played = sum(len(result.returns) for result in self._open[match][1])
            if match in self._lost or played >= self._match_games:
                with contextlib.suppress(PlayerUnavailable):
                    self._tables[table] = self._seat(table, self._request())
        for match in self._open.keys() - self.sampler.in_play():
            self._close(match)

    def _seat(self, table: int, match: Match) -> str:
        self._open[match.match] = (match, [])
        self.sampler.seat(table, Opponent(match.match, self._opponents(match), self._recorded(match)))
        return match.match

    def _close(self, match: str) -> None:
        issued, results = self._open[match]
        if match not in self._lost:
            returns = np.concatenate([*(result.returns for result in results), np.zeros(0, np.float32)])
            games = tuple(game for result in results for game in result.games)
            self._report(issued, MatchResult(match, returns, games))
        self._lost.discard(match)
        del self._open[match]  # not before: a report that failed is made again
