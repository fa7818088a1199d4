"""Tables of games, each always in a match that the league issued."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Mapping
from typing import Generic, Protocol, TypeVar

from torch import Tensor

from agents.policies import Policy
from agents.trajectories import Trajectory
from league.state.league_state import Match
from warren.errors import PlayerUnavailable
from workers.rollout.games.match_result import MatchResult
from workers.rollout.games.seat_map import Opponent
from workers.rollout.games.selfplay_sampler import MatchSampler


class MatchHost(ABC):
    """Issues the matches of one home player and takes their results."""

    @abstractmethod
    def request(self) -> Match:
        """Return the next match. Raises PlayerUnavailable when there is none for now."""

    @abstractmethod
    def opponent(self, match: Match) -> Opponent:
        """Return the away side of `match`, with the match's id as tag; the same weights play it to its end."""

    @abstractmethod
    def report(self, match: Match, result: MatchResult) -> None:
        """Report the result of a match that is over to the league; the result may hold no games."""

    @abstractmethod
    def between_moves(self) -> None:
        """Do what is due while games are played; called between moves."""


class Tables(Protocol):
    """Games at tables: GamesInPlay, or another class that tells opponents apart and hands out results as it does."""

    num_tables: int

    @property
    def ready(self) -> int:
        """Number of complete trajectories."""
        ...

    def seat(self, table: int, opponent: Opponent) -> None:
        """Let the games of `table` that begin from now on be against `opponent`."""
        ...

    def pop_results(self) -> list[MatchResult]:
        """Return the games that ended since the last call, one result per opponent met."""
        ...

    def in_play(self) -> set[Hashable]:
        """Return the tags of opponents in the games under way and the next ones, or with results not popped yet."""
        ...

    def restart(self) -> None:
        """Drop all games and experience, but keep results: the learning policy has become another one."""
        ...


P = TypeVar("P", bound=Tables)


class MatchTables(Generic[P]):
    """Keeps the tables of `play` in matches of at least `match_games` games.

    A match is over once it has that many games and all games begun in it have ended; the table's next match begins
    while the last of them are still being played.
    """

    def __init__(self, play: P, match_games: int, host: MatchHost) -> None:
        self.play, self.host = play, host
        self.ended = False  # games have ended since `prepare`; set by the caller that steps them
        self._match_games = match_games
        self._open: dict[str, tuple[Match, list[MatchResult]]] = {}
        self._tables: list[str] = []  # id of each table's match
        self._lost: set[str] = set()  # matches that are open here but no longer in the league
        self._anew = False  # a restart is due

    def prepare(self) -> None:
        """Report matches that have ended, and seat others; call it before every move.

        Raises what the host raises; the next call goes on from there. Raises PlayerUnavailable only while a table has
        no match yet; later the table plays on in its present match.
        """
        if self._anew:
            self.leave()
            self._tables.clear()
            self.play.restart()
            self._anew = self.ended = False
        for table in range(len(self._tables), self.play.num_tables):
            self._tables.append(self._seat(table, self.host.request()))
        if self.ended:
            self._follow()
            self.ended = False

    def restart(self) -> None:
        """Let the next `prepare` report what was played and begin anew: the learning policy has become another one.

        It is not done at once: while the league is away or the player paused, a restart would fail halfway.
        """
        self._anew = True

    @property
    def ready(self) -> int:
        """Number of complete trajectories of the present policy."""
        return 0 if self._anew else self.play.ready

    @property
    def held(self) -> list[str]:
        """Ids of the matches that were issued and have not been reported."""
        return [match for match in self._open if match not in self._lost]

    def lose(self, matches: Iterable[str]) -> None:
        """Give up matches whose leases have run out: their results no longer count, so their tables get others."""
        self._lost |= self._open.keys() & set(matches)

    def leave(self) -> None:
        """Report what was played so far of every match."""
        self._take_results()
        for match in list(self._open):
            self._close(match)

    def _take_results(self) -> None:
        for result in self.play.pop_results():
            self._open[str(result.opponent)][1].append(result)

    def _follow(self) -> None:
        self._take_results()
        for table, match in enumerate(self._tables):
            played = sum(len(result.returns) for result in self._open[match][1])
            if match in self._lost or played >= self._match_games:
                with contextlib.suppress(PlayerUnavailable):
                    self._tables[table] = self._seat(table, self.host.request())
        for match in self._open.keys() - self.play.in_play():
            self._close(match)

    def _seat(self, table: int, match: Match) -> str:
        self._open[match.id] = (match, [])
        self.play.seat(table, self.host.opponent(match))
        return match.id

    def _close(self, match: str) -> None:
        issued, results = self._open[match]
        if match not in self._lost:
            self.host.report(issued, MatchResult.joined(match, results))
        self._lost.discard(match)
        del self._open[match]  # only now: a report that failed is made again


class Matches(MatchTables[MatchSampler]):
    """A MatchSampler whose tables always play matches that the league issued."""

    def __init__(self, sampler: MatchSampler, match_games: int, host: MatchHost) -> None:
        super().__init__(sampler, match_games, host)
        self.sampler = sampler

    @property
    def policy(self) -> Policy:
        """The learning policy."""
        return self.sampler.policy

    @property
    def version(self) -> int:
        """Version of the learning policy's weights."""
        return self.sampler.version

    def load(self, weights: Mapping[str, Tensor], version: int, behaviour: Mapping[str, float] | None = None) -> None:
        """See Sampler.load."""
        self.sampler.load(weights, version, behaviour)

    def collect(self, budget: int) -> Trajectory:
        """Return the sampler's next trajectories, all of one policy: if it is restarted meanwhile, it begins anew.

        Raises what the host raises; the next call goes on from there.
        """
        while True:
            self.prepare()
            if self.sampler.ready >= budget:
                return self.sampler.take(budget)
            self.host.between_moves()
            self.ended |= self.sampler.advance()
