"""Selection of an actor's matches for recording, and their records."""

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
from workers.replays.match_record import NTH, UPSET, RecordedMatch
from workers.replays.sending import ReplaySender
from workers.rollout.games.game_log import Weights
from workers.rollout.games.match_result import MatchResult

logger = logging.getLogger(__name__)

OPEN = 4096  # matches remembered at most: those whose leases run out are never reported


@dataclass(frozen=True)
class Candidate:
    """A match that may be recorded: because it is an n-th one (`nth`), or if it turns out to be an upset."""

    nth: bool
    away: Weights | None


class MatchRecorder:
    """Records every `replay_every`-th match of one actor, and each upset.

    An upset is the loss of a player whose expected score, by the Elo ratings just before the result, was
    `replay_upsets` or more. `ratings` returns the ratings of two players, given their names.
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
        self._candidates: dict[str, Candidate] = {}

    @property
    def active(self) -> bool:
        """True if any match may be recorded."""
        return self._league.records_matches

    def begins(self, match: Match, away: Callable[[], Weights | None]) -> None:
        """Note a match that is about to be played; `away` returns the weights of its away side, None for self-play."""
        if not self.active:
            return
        every = self._league.replay_every
        nth = every > 0 and self._count % every == 0
        self._count += 1
        if nth or self._league.replay_upsets is not None:
            while len(self._candidates) >= OPEN:
                del self._candidates[next(iter(self._candidates))]
            self._candidates[match.id] = Candidate(nth, away())

    def wants(self, match: Match) -> bool:
        """Return whether the games of `match` are to be kept."""
        return match.id in self._candidates

    def expected(self, match: Match) -> float | None:
        """Return the expected score of the home player, in (0, 1); None if it is not needed or unknown.

        Call it before the result is reported, which changes the ratings.
        """
        if self._league.replay_upsets is None or match.id not in self._candidates or match.home == match.away:
            return None
        try:
            return expected_score(*self._ratings(match.home, match.away))
        except (redis.RedisError, LeagueError) as error:
            logger.warning(
                "could not read ratings to see whether match %s is an upset: %s",
                match.id,
                error,
                extra={"match": match.id},
            )
            return None

    def counted(self, match: Match, result: MatchResult, outcomes: str, expected: float | None) -> None:
        """Send the record of a match whose `outcomes` the league has counted, if there is to be one."""
        candidate = self._candidates.pop(match.id, None)
        if candidate is None:
            return
        rules = [rule for rule, holds in ((NTH, candidate.nth), (UPSET, self._is_upset(outcomes, expected))) if holds]
        if not rules:
            return
        league = self._league
        self._sender.send(
            RecordedMatch(
                match.id, tuple(rules), league.env, league.env_kwargs, match.home, match.away, candidate.away,
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
    """Return a function from the names of two players to their present Elo ratings."""

    def ratings(home: str, away: str) -> tuple[float, float]:
        view = store.view()
        first, second = view.elo(np.array([view.roster[home].slot, view.roster[away].slot])).tolist()
        return first, second

    return ratings
