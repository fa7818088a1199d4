"""Which of an actor's matches are recorded, and their records."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import redis

from league.redis.store import Store
from league.rules.ratings import expected_score
from league.rules.win_rates import SCORES
from league.state.league_state import Match
from warren.errors import LeagueError
from workers.config.league import LeagueConfig
from workers.replays.recorded import NTH, UPSET, RecordedMatch
from workers.replays.sending import ReplaySender
from workers.rollout.games.game_log import Weights
from workers.rollout.games.match_result import MatchResult

logger = logging.getLogger(__name__)

OPEN = 4096  # matches that are remembered: of those whose leases ran out, nobody says that they are over


@dataclass(frozen=True)
class Begun:
    """A match that may be recorded."""

    nth: bool
    away: Weights | None


class MatchRecorder:
    """Of one actor. Every `replay_every`-th match is recorded, and each that turns out an upset.

    An upset is lost by a player whose expected score, by the Elo ratings just before the result, was `replay_upsets`
    or more. `ratings` gives those of two players, by name.
    """

    def __init__(
        self,
        league: LeagueConfig,
        sender: ReplaySender,
        source: str,
        ratings: Callable[[str, str], tuple[float, float]],
    ) -> None:
        self._league, self._sender, self._source, self._ratings = league, sender, source, ratings
        self._count = 0
        self._begun: dict[str, Begun] = {}

    @property
    def active(self) -> bool:
        """Whether any match may be recorded."""
        return self._league.records_matches

    def begins(self, match: Match, away: Callable[[], Weights | None]) -> None:
        """`match` is about to be played; `away` says what plays its away side, None for the home player itself."""
        if not self.active:
            return
        every = self._league.replay_every
        nth = every > 0 and self._count % every == 0
        self._count += 1
        if nth or self._league.replay_upsets is not None:
            while len(self._begun) >= OPEN:
                del self._begun[next(iter(self._begun))]
            self._begun[match.match] = Begun(nth, away())

    def wants(self, match: Match) -> bool:
        """Whether its games are to be kept."""
        return match.match in self._begun

    def expected(self, match: Match) -> float | None:
        """The score in (0, 1) that the home player is expected to reach; None where nobody asks, or it is unknown.

        To be asked before the result is reported, which moves the ratings.
        """
        if self._league.replay_upsets is None or match.match not in self._begun or match.home == match.away:
            return None
        try:
            return expected_score(*self._ratings(match.home, match.away))
        except (redis.RedisError, LeagueError) as error:
            logger.warning("whether match %s is an upset is not known: %s", match.match, error)
            return None

    def counted(self, match: Match, result: MatchResult, outcomes: str, expected: float | None) -> None:
        """The league has counted `outcomes`; send the record if there is to be one."""
        begun = self._begun.pop(match.match, None)
        if begun is None:
            return
        rules = [rule for rule, holds in ((NTH, begun.nth), (UPSET, self._is_upset(outcomes, expected))) if holds]
        if not rules:
            return
        league = self._league
        self._sender.send(
            RecordedMatch(
                match.match, tuple(rules), league.env, league.env_kwargs, match.home, match.away, begun.away,
                league.series, outcomes, time.time(), self._source, result.games,
            )
        )  # fmt: skip

    def _is_upset(self, outcomes: str, expected: float | None) -> bool:
        if expected is None or self._league.replay_upsets is None:
            return False
        score = float(np.mean([SCORES[outcome] for outcome in outcomes]))
        bound = self._league.replay_upsets
        return (score < 0.5 and expected >= bound) or (score > 0.5 and 1.0 - expected >= bound)


def ratings_in(store: Store) -> Callable[[str, str], tuple[float, float]]:
    """Elo of two players of a league, as they are now."""

    def ratings(home: str, away: str) -> tuple[float, float]:
        view = store.view()
        first, second = view.elo(np.array([view.roster[home].slot, view.roster[away].slot])).tolist()
        return first, second

    return ratings
