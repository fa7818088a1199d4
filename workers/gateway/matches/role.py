"""The gateway of a league: games that drive themselves are played as its matches, for every player that learns.

Sessions are seated as they begin (seating.py); one thread decides for all their agents (player.py); the streaming
thread renews the matches, loads weights as they come, and sends each player's segments once they are complete.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any

import redis
import torch

from agents import devices
from agents.trajectories import Trajectory
from envs.games.gamecore_games import sides_of
from envs.one_agent import gamecore_actors
from envs.rewards import Rewards
from warren.errors import MatchmakingError, PlayerUnavailable, WarrenError
from workers.config import roles
from workers.config.league import LeagueConfig
from workers.config.schema import Config
from workers.gateway.experience import Experience
from workers.gateway.front import Front
from workers.gateway.fronted import Fronted
from workers.gateway.limits import Limits
from workers.gateway.matches.player import MatchPlayer
from workers.gateway.matches.seating import NO_MATCH, Seating
from workers.gateway.matches.tables import SessionMatches, SessionTables
from workers.gateway.server import opener
from workers.leagues.actor import LeagueActorRole
from workers.leagues.known_players import Learning
from workers.leagues.streaming import AGAIN_AFTER, LeagueStream
from workers.leagues.turns import CREDIT, Turns, shares_of
from workers.rollout.actor_process import live_as_actor
from workers.runtime.connect import servers_are_remote
from workers.runtime.league_paths import league_of
from workers.runtime.role import enter
from workers.runtime.session import Session
from workers.runtime.timing import Timing

logger = logging.getLogger(__name__)


class GatewayLeagueRole(Fronted, LeagueActorRole):
    """Serves games that connect by themselves, with the policies of all sides and the matches that they are in."""

    role = roles.GATEWAY

    def __init__(
        self, config: Config, session: Session, league: LeagueConfig, servers_are_remote: bool = False
    ) -> None:
        """Open the ports. Raises ConfigurationError, for instance for a port that is taken."""
        super().__init__(config, session, league, servers_are_remote)
        self.timing = Timing()
        name = league.env.partition(":")[2]
        actor = gamecore_actors.find(name)
        self.sides = sides_of(name, actor)
        segment = -(-league.lanes // config.segments_per_update)  # LeagueStream's rule
        self.seating = Seating(Turns(shares_of(league), CREDIT * segment * league.unroll_length))
        self.deciding = MatchPlayer(self.seating, self.sides, segment, self._seed("actions"), self.timing)
        self.front = Front(
            session,
            opener(
                actor, league.env_kwargs, self.deciding, Rewards(scale=league.reward_scale), Limits.of(config.gateway)
            ),
            lambda: self.deciding.ready,
            self.facts,
            self._failed,
            NO_MATCH,
        )

    def facts(self) -> dict[str, Any]:
        """Return the answer to GET: this gateway's state."""
        known = {one.name: one.matches for one in self.players.all() if isinstance(one.matches, SessionMatches)}
        experiences = {name: matches.play.experience for name, matches in known.items()}
        return {
            "run": self.config.run,
            "gateway": self.source,
            "address": self.front.address,
            "versions": {name: one.version for name, one in experiences.items()},
            "matches": sum(one.begun for one in known.values()),
            "decisions": sum(one.decisions for one in experiences.values()),
            "dropped": sum(one.dropped for one in experiences.values()),
        }

    # The streaming thread.

    def stream(self) -> None:
        MatchStream(self, self.session, self.league, self.stopping, self._servers_are_remote).run()

    def prepare(self, home: Learning) -> None:
        """Load the newest weights of `home`, renew its matches, and seat others. Raises the league's errors."""
        home.refresh()
        self.keep_matches(home)
        self.matches_of(home).prepare()

    def matches_of(self, home: Learning) -> SessionMatches:
        """Return the player's matches, which begin with the first call."""
        if home.matches is None:
            experience = Experience(
                home.policy,
                self.league.unroll_length,
                Rewards(scale=self.league.reward_scale),
                self.deciding.generator,
                self.deciding.changed,
                self.config.max_staleness,
                True,
                self.fields_of(home),
            )
            experience.load(home.policy.state_dict(), home.version, home.policy.behaviour)
            tables = SessionTables(home.name, self.league.tables, len(self.sides), experience, self.deciding.changed)
            home.matches = SessionMatches(tables, self.league.match_games, self.host(home, len(self.sides) - 1))
            self.seating.add(tables)
        assert isinstance(home.matches, SessionMatches)
        return home.matches

    def leave_matches(self, home: Learning) -> None:
        """Report the matches of `home`; other matches begin once games are played for it again."""
        if isinstance(home.matches, SessionMatches) and home.matches.begun:
            try:
                home.matches.pause()
            except WarrenError as error:  # their leases run out
                logger.warning("matches of %s were not given back: %s", home.name, error)

    def _play(self, home: Learning, actors: int, trajectories: int) -> tuple[Trajectory, dict[str, int]]:
        experience = self.matches_of(home).play.experience
        trajectory = self.deciding.take(experience, trajectories)
        with self.deciding.changed:
            return trajectory, {"expired": experience.pop_expired(), "generation": home.generation}

    def _device(self) -> torch.device:
        return devices.resolve(self.config.actor_device, "actor_device")

    def leave(self) -> None:
        """Report what was played, and log where the time went."""
        self.front.close()
        super().leave()
        self.deciding.close()
        logger.info("where the time went:\n%s", "\n".join(self.timing.lines()))


class MatchStream(LeagueStream):
    """A LeagueStream whose games play on by themselves: it renews their matches, and sends complete segments."""

    _host: GatewayLeagueRole

    def __init__(self, *given: Any) -> None:
        """See LeagueStream."""
        super().__init__(*given)
        self._leave_at = 0.0

    def _share(self, earned: Mapping[str, float]) -> None:
        super()._share(earned)
        self._host.seating.share(earned)

    def _ready(self) -> list[str]:
        if time.monotonic() >= self._leave_at:
            self._leave_at = time.monotonic() + AGAIN_AFTER
            for home in self._host.players.all():
                if home.name not in self._learning:  # it is paused, or learns no more
                    self._host.leave_matches(home)
        names = super()._ready()
        self._host.seating.offer([name for name in names if self._prepare(name)])
        return [name for name in names if self._host.matches_of(self._host.player(name)).ready >= self._lanes]

    def _prepare(self, name: str) -> bool:
        """Renew the player's matches; return whether games may be played for it."""
        try:
            self._host.prepare(self._host.player(name))
            return True
        except (MatchmakingError, PlayerUnavailable) as error:  # paused, or the first of a league: nothing has failed
            self._defer(name, str(error))
        except (WarrenError, redis.RedisError) as error:
            if not self._stopping.is_set():
                logger.warning("could not play for %s, trying again: %s", name, error, extra={"player": name})
        self._turn_states[name].play_at = time.monotonic() + AGAIN_AFTER
        return False


def run(config: Config) -> int:
    """Serve until the run is over or a stop signal; return exit status 0, or 1 if playing failed."""
    session = enter(config, roles.GATEWAY, torch_threads=1, cache_bytes=0)  # a frozen model's policy is kept instead
    remote = servers_are_remote(session.redis_url)
    return live_as_actor(
        session, roles.GATEWAY, lambda config: GatewayLeagueRole(config, session, league_of(config), remote)
    )
