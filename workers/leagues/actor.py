"""The actor of a league: plays both sides of the matches that the league issues, for every player that learns.

Gathered: it answers rollout tasks of any learner, so one pool of actors serves all. Streaming: it plays for each
learning player in turn, and sends what it collected to the player's learner (streaming.py). Games under way, opponents
at the tables and open matches of a player are kept from rollout to rollout.
"""

from __future__ import annotations

import logging
import time
import zlib
from typing import Any

import torch

import envs
from agents.policies import Policy
from agents.trajectories import Trajectory
from warren.errors import LeagueError, MatchmakingError, PlayerUnavailable, WarrenError
from workers.config import roles
from workers.config.league import LeagueConfig
from workers.config.schema import Config
from workers.leagues.client import LeagueClient
from workers.leagues.known_players import KnownPlayers, Learning
from workers.leagues.player_host import PlayerHost
from workers.leagues.recording import MatchRecorder, ratings_in
from workers.leagues.streaming import LeagueStream
from workers.replays.sending import ReplaySender
from workers.rollout.actor_process import ActorProcess, live_as_actor
from workers.rollout.asked import fields_asked
from workers.rollout.games.match_scheduler import Matches
from workers.rollout.games.selfplay_sampler import MatchSampler
from workers.rollout.sending.answers import answer
from workers.rollout.sending.numbering import Numbering
from workers.runtime.connect import servers_are_remote
from workers.runtime.league_paths import league_of, store_of
from workers.runtime.league_policies import LeaguePolicies
from workers.runtime.role import enter
from workers.runtime.session import Session, source_name

logger = logging.getLogger(__name__)

SLOWLY_MADE = 2.0  # s; games that take longer to make are logged


class LeagueActorRole(ActorProcess):
    """Games for every learning player, the policies of their opponents, and the matches that they are in."""

    def __init__(
        self, config: Config, session: Session, league: LeagueConfig, servers_are_remote: bool = False
    ) -> None:
        super().__init__(config, session)
        self._servers_are_remote = servers_are_remote
        self.league = league
        self.source = source_name(config.actor_id)
        self.client = LeagueClient(session, self.source, self.stopping, config.round_timeout)
        self.policies = LeaguePolicies(league, self._device())
        self.asked = {name: self._fields(name, self.policies.new(name)) for name in league.players}
        subscriber = f"actor-{config.actor_id}"
        self.players = KnownPlayers(session, subscriber, self.policies, self.stopping, config.round_timeout)
        sender = ReplaySender(session.redis, session.topology.key_prefix)
        self.recorder = MatchRecorder(league, sender, self.source, ratings_in(store_of(session)))
        self._numbered = Numbering(session, self.source)
        self._hosts: dict[str, PlayerHost] = {}
        session.app.task(self.rollout, name="actor.rollout")

    def rollout(self, round_id: str, version: int, player: str, actors: int) -> dict[str, Any]:
        """Run the rollout task: return trajectories of `player`, made with its weights of `version` or newer.

        `actors`: number of rollouts in the round. They share the round's trajectories and games, so the size of an
        update does not depend on the number of actors.
        """
        return answer(round_id, self.stopping, lambda: self._rollout(version, player, actors))

    def _rollout(self, version: int, player: str, actors: int) -> dict[str, Any]:
        home = self.players[player]
        if not home.weights.wait_for(version, self.stopping, self.config.round_timeout):
            raise WarrenError(f"weights {player}@{version} did not arrive; this actor has {home.weights.version}")
        if home.weights.version > version:  # an update has used another round of that version
            return {"superseded": home.weights.version}
        try:
            return self.collect(home, actors, -(-self.league.lanes // actors))
        except (MatchmakingError, PlayerUnavailable) as error:  # no failure: paused, or alone in a new league
            return {"deferred": str(error)}

    def collect(self, home: Learning, actors: int, trajectories: int) -> dict[str, Any]:
        """Return the payload of `trajectories` trajectories of `home`, made with the newest weights that have arrived.

        `actors`: number of actors that share the player's games. All trajectories are of one generation. Raises what
        the league raises.
        """
        self.first_step_at = self.first_step_at or time.time()
        trajectory, facts = self._play(home, actors, trajectories)
        return {
            "first_step_at": self.first_step_at,
            "collected_at": time.time(),
            **facts,
            **self._numbered(trajectory),
        }

    def _play(self, home: Learning, actors: int, trajectories: int) -> tuple[Trajectory, dict[str, int]]:
        """Return (the trajectory of a segment, other entries of its payload); arguments as in `collect`."""
        self.refresh()
        self.keep_matches(home)
        trajectory = self._matches(home, actors).collect(trajectories)
        assert home.sampler is not None
        return trajectory, {"expired": home.sampler.pop_expired(), "generation": home.generation}

    def refresh(self) -> None:
        """Load the newest weights that have arrived, of all players."""
        for learning in self.players.all():
            learning.refresh()

    def learning(self) -> list[str]:
        """See streaming.Host."""
        return self.client.learning()

    def player(self, name: str) -> Learning:
        """See streaming.Host."""
        return self.players[name]

    def stream(self) -> None:
        LeagueStream(self, self.session, self.league, self.stopping, self._servers_are_remote).run()

    def leave(self) -> None:
        """End the sampling thread, report what was played, and give back matches without a finished game."""
        super().leave()
        for learning in self.players.all():
            if not self.thread.is_alive():  # if it still runs, the leases run out
                self.leave_matches(learning)
            learning.subscription.stop()

    # Matches.

    def leave_matches(self, home: Learning) -> None:
        """Report the matches of `home` and close its games; new games are made when it is played for again."""
        matches, home.matches = home.matches, None
        sampler, home.sampler = home.sampler, None
        if matches is not None:
            try:
                matches.leave()
            except WarrenError as error:  # their leases run out
                logger.warning("matches of %s were not given back: %s", home.name, error)
        if sampler is not None:
            sampler.games.close()

    def _matches(self, home: Learning, actors: int) -> Matches:
        """Return the player's matches; begin new ones if this actor's share of the game slots has changed."""
        slots = self.league.slots(actors)
        if home.sampler is not None and home.sampler.games.num_envs != slots:
            logger.info("%d actors share the games of %s now: %d for this one", actors, home.name, slots)
            self.leave_matches(home)
        if home.matches is None:
            home.begun += 1
            began = time.monotonic()
            games = envs.make_two_player(
                self.league.env, slots, self._seed(f"{home.name} games {home.begun}"), **self.league.env_kwargs
            )
            if (took := time.monotonic() - began) > SLOWLY_MADE:
                logger.info("%d games of %s for %s took %.1f s to make", slots, self.league.env, home.name, took)
            home.sampler = MatchSampler(
                games,
                home.policy,
                self._seed(f"{home.name} actions {home.begun}"),
                self.league.unroll_length,
                self.league.tables,
                self.league.reward_scale,
                max_age=self.config.max_staleness,
                player=home.name if self.recorder.active else None,
                fields=self.fields_of(home),
                minimax=self.league.minimax_of(home.name),
            )
            home.sampler.load(home.policy.state_dict(), home.version, home.policy.behaviour)
            home.matches = Matches(home.sampler, self.league.match_games, self.host(home, len(games.teams) - 1))
        assert isinstance(home.matches, Matches)
        return home.matches

    def host(self, home: Learning, opponents: int = 1) -> PlayerHost:
        """Return the host of the matches of `home`, each against `opponents` opponents."""
        if home.name not in self._hosts:
            self._hosts[home.name] = PlayerHost(
                home.name, self.league, self.client, self.players, self.recorder, lambda: self.keep_matches(home),
                opponents,
            )  # fmt: skip
        return self._hosts[home.name]

    def keep_matches(self, home: Learning) -> None:
        """Extend the leases of the matches under way; called before and during a rollout of `home`.

        Raises LeagueError if this actor streams and was told to stop: nobody waits for its rollout.
        """
        if self.streaming and self.stopping.is_set():
            raise LeagueError("this actor is to stop")
        now = home.played_at = time.monotonic()
        for known in self.players.all():
            # Players that are paused, frozen or without a learner are not played: their leases run out.
            if known.matches is None or now < known.extend_at or known.played_at < now - self.league.lease:
                continue
            known.extend_at = now + self.league.lease / 4.0
            if held := known.matches.held:
                still = self.client.extend(held, self.league.lease)
                known.matches.lose(match for match, is_open in zip(held, still, strict=True) if not is_open)

    def fields_of(self, home: Learning) -> list[str]:
        """Return the fields that the algorithm of `home` asks samplers to collect."""
        if home.name not in self.asked:  # it joined the league later
            self.asked[home.name] = self._fields(home.name, home.policy)
        return self.asked[home.name]

    def _fields(self, player: str, policy: Policy) -> list[str]:
        return fields_asked(self.league.algorithm_of(player), policy)

    def _device(self) -> torch.device | None:
        return None  # the CPU

    def _seed(self, purpose: str) -> int:
        # Each process has its own source: no two actors play the same games, and a restarted one plays new ones.
        return zlib.crc32(f"{self.config.seed}/{self.source}/{purpose}".encode()) % (1 << 31)


def run(config: Config, make: type[LeagueActorRole] = LeagueActorRole) -> int:
    """Play until the run is over or a stop; return exit status 0, or 1 when playing failed."""
    session = enter(config, roles.ACTOR, torch_threads=1, cache_bytes=0)  # policies of frozen models are cached instead
    remote = servers_are_remote(session.redis_url)
    return live_as_actor(session, roles.ACTOR, lambda config: make(config, session, league_of(config), remote))
