"""The actor of a league: plays both sides of the matches that the league issues, for every player that learns.

It answers rollout tasks of any learner, so one pool of actors serves them all. What it plays for a player goes on from
rollout to rollout: games under way, opponents at the tables, and the matches that it holds.
"""

from __future__ import annotations

import logging
import threading
import time
import zlib
from dataclasses import dataclass
from typing import Any

import torch
from celery.exceptions import Reject

import envs
from agents.checkpoints import load_weights
from agents.policies import Policy
from league.matchmaking.view import ModelRef
from league.state.league_state import Match
from tasks.events import STATUS, WEIGHTS, Subscription, of_player
from warren.errors import MatchmakingError, PlayerWaits, WarrenError
from workers.config.league import LeagueConfig
from workers.config.schema import Config
from workers.config.validation import verify
from workers.leagues.client import LeagueClient
from workers.rollout.match_result import MatchResult
from workers.rollout.match_scheduler import Matches
from workers.rollout.selfplay_sampler import MatchSampler
from workers.runtime.connect import connect
from workers.runtime.league_paths import league_of, policy_builder
from workers.runtime.policy_cache import FrozenPolicies
from workers.runtime.session import Session, log_to_stderr, source_name, stop_worker
from workers.runtime.weight_sync import NewestWeights

logger = logging.getLogger(__name__)


@dataclass
class Learning:
    """A learning player as this actor knows it: its newest weights, and its games once it has played at home."""

    name: str
    weights: NewestWeights
    subscription: Subscription
    policy: Policy
    generation: int = 0
    version: int = -1
    played_at: float = 0.0  # monotonic time of its last rollout, s
    sampler: MatchSampler | None = None
    matches: Matches | None = None

    def refresh(self) -> bool:
        """Load the newest weights that are here; whether the player has become another one."""
        newest = self.weights.stamped(newer_than=self.version)
        if newest is None:
            return False
        stamp, tensors = newest
        load_weights(self.policy, tensors, f"{self.name}@{stamp['version']}")
        begun_anew = self.version >= 0 and stamp.get("generation", 0) != self.generation
        self.version, self.generation = stamp["version"], stamp.get("generation", 0)
        if self.sampler is not None:
            self.sampler.weight_version = self.version
        return begun_anew


class LeagueActorRole:
    """Games for every learning player, the policies of their opponents, and the matches that they are in."""

    def __init__(self, config: Config, session: Session, league: LeagueConfig) -> None:
        self.config, self.session, self.league = config, session, league
        self.source = source_name(config.actor_id)
        self.stopping = threading.Event()
        self.client = LeagueClient(session, self.source, self.stopping, config.round_timeout)
        # Lanes and games are shared out among the configured actors; more or fewer later change an update's size.
        tables = 2 * league.tables
        self.lanes = -(-league.lanes // config.actors)
        self.games = max(tables, league.games // config.actors // tables * tables)
        self._build = policy_builder(league)
        self._learning: dict[str, Learning] = {}
        self._frozen = FrozenPolicies(session.pool, self._build)
        self._extend_at = 0.0
        self.first_step_at: float | None = None
        session.app.task(self.rollout, name="actor.rollout")

    def rollout(self, round_id: str, version: int, player: str) -> dict[str, Any]:
        """The rollout task: lanes of `player`'s decisions, made with its weights of `version` or newer."""
        try:
            return self._rollout(round_id, version, player)
        except WarrenError as error:
            if self.stopping.is_set():  # it gave up waiting for somebody, and has nothing to answer: others have time
                raise Reject(str(error), requeue=True) from None
            raise

    def _rollout(self, round_id: str, version: int, player: str) -> dict[str, Any]:
        home = self._known(player)
        if not home.weights.wait_for(version, self.stopping, self.config.round_timeout):
            raise WarrenError(f"weights {player}@{version} did not arrive; this actor has {home.weights.version}")
        for learning in self._learning.values():
            if learning.refresh() and learning.matches is not None:
                learning.matches.restart()
        home.played_at = time.monotonic()
        self._extend_leases()
        self.first_step_at = self.first_step_at or time.time()
        try:
            segment = self._matches(home).collect(self.lanes)
        except (MatchmakingError, PlayerWaits) as error:  # paused, or the first of a league: nothing has failed
            return {"round": round_id, "waits": str(error)}
        return {
            "round": round_id,
            "number": None,
            "source": self.source,
            "first_step_at": self.first_step_at,
            "collected_at": time.time(),
            "segment": segment.to_dict(),
        }

    def leave(self) -> None:
        """Report what was played, and give back the matches of which nothing was."""
        for learning in self._learning.values():
            try:
                if learning.matches is not None:
                    learning.matches.leave()
            except WarrenError as error:  # their leases run out
                logger.warning("matches of %s were not given back: %s", learning.name, error)
            learning.subscription.stop()

    def on_stopping(self) -> None:
        """Told to stop."""
        self.stopping.set()

    def on_status(self, figures: dict[str, Any]) -> None:
        """The run is over when its launcher says so."""
        if figures["state"] in ("solved", "finished"):
            self.stopping.set()
            stop_worker()

    # Players.

    def _known(self, name: str) -> Learning:
        if name not in self._learning:
            weights = NewestWeights(self.session.pool, name)
            subscription = Subscription(
                self.session.app,
                self.session.topology,
                {of_player(WEIGHTS, name): weights.receive},
                subscriber=f"actor-{self.config.actor_id}",
                on_connected=weights.fetch,
            ).start()
            self._learning[name] = Learning(name, weights, subscription, self._build(0))
        return self._learning[name]

    def _matches(self, home: Learning) -> Matches:
        if home.matches is None:
            games = envs.make_two_player(
                self.league.env, self.games, self._seed(f"{home.name} games"), **self.league.env_kwargs
            )
            home.sampler = MatchSampler(
                games,
                home.policy,
                self._seed(f"{home.name} actions"),
                self.league.unroll_length,
                self.league.tables,
                self.league.reward_scale,
            )
            home.sampler.weight_version = home.version
            models: dict[str, ModelRef | None] = {}

            def request() -> Match | None:
                try:
                    invitation = self.client.request(home.name, self.league.lease)
                except PlayerWaits:
                    if home.matches is None:
                        raise
                    return None
                models[invitation.match.match] = invitation.model
                return invitation.match

            def report(match: Match, result: MatchResult) -> None:
                if len(result.returns):
                    self.client.report(match, result.outcomes(self.league.series))
                else:
                    self.client.abort(match)

            def opponent(match: Match) -> Policy | None:
                model = models.pop(match.match)
                return None if match.away == home.name else self._opponent(match.away, model)

            home.matches = Matches(home.sampler, self.league.match_games, request, report, opponent)
        return home.matches

    def _opponent(self, name: str, model: ModelRef | None) -> Policy:
        if model is None:
            learning = self._known(name)
            if learning.version < 0:  # later ones are loaded between rollouts
                if not learning.weights.wait_for(0, self.stopping, self.config.round_timeout):
                    raise WarrenError(f"{name!r} is to be played and has published no weights; is its learner up?")
                learning.refresh()
            return learning.policy
        return self._frozen[model]

    def _extend_leases(self) -> None:
        if time.monotonic() >= self._extend_at:
            # Of players that are paused, frozen or without a learner nothing is played: their matches run out.
            since = time.monotonic() - self.league.lease
            playing = [known for known in self._learning.values() if known.matches and known.played_at > since]
            held = [match for known in playing if known.matches for match in known.matches.held]
            if held:
                self.client.extend(held, self.league.lease)
            self._extend_at = time.monotonic() + self.league.lease / 4.0

    def _seed(self, purpose: str) -> int:
        # The source has never been before, so no two actors play the same games, nor a restarted one its old ones.
        return zlib.crc32(f"{self.config.seed}/{self.source}/{purpose}".encode()) % (1 << 31)


def run_league(config: Config) -> int:
    """Play until the run is over or a stop; the exit status."""
    verify(config, role="actor")
    log_to_stderr(config.log_level)
    torch.set_num_threads(1)
    session = Session(config, *connect(config))
    session.declare()
    actor = LeagueActorRole(config, session, league_of(config))
    name = f"actor-{config.actor_id}"
    subscription = Subscription(session.app, session.topology, {STATUS: actor.on_status}, subscriber=name).start()
    try:
        return session.work(name, session.topology.actor_queue(), lambda: None, actor.on_stopping)
    finally:
        actor.leave()
        subscription.stop()
