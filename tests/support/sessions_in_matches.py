"""Sessions of rock, paper, scissors that drive themselves, in matches of a league in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Box, Discrete

from agents import build_policy
from agents.policies import Policy
from agents.trees import spec_of
from envs.masks import Masks
from envs.rewards import Rewards
from league.matchmaking import seat_of
from league.matchmaking.view import ModelRef
from league.state.in_memory import MemoryLeague
from league.state.league_state import Match
from warren.errors import PlayerUnavailable
from workers.gateway.experience import Experience
from workers.gateway.game import Game
from workers.gateway.matches.player import MatchPlayer
from workers.gateway.matches.seating import Seating
from workers.gateway.matches.tables import SessionMatches, SessionTables
from workers.leagues.turns import Turns
from workers.rollout.games.match_result import MatchResult
from workers.rollout.games.match_scheduler import MatchHost
from workers.rollout.games.seat_map import Opponent
from workers.runtime.timing import Timing

OBSERVATIONS, ACTIONS = Box(-np.inf, np.inf, (2,), np.float32), Discrete(3)
ROCK, PAPER, SCISSORS = range(3)
RED_AND_BLUE = (("red",), ("blue",))


def always(action: int) -> Policy:
    """Return a policy that always plays `action`."""
    policy = build_policy({"hidden_sizes": []}, OBSERVATIONS, ACTIONS, 0)
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.zero_()
        policy.state_dict()["network.policy_trunk.layers.0.bias"][action] = 100.0
    return policy


class Host(MatchHost):
    """Matches of one player in a MemoryLeague; `reported`: match id -> outcomes, "" for an aborted match."""

    def __init__(self, league: MemoryLeague, home: str, policies: Mapping[str, Policy], opponents: int = 1) -> None:
        self.league, self._home, self._policies, self._opponents = league, home, policies, opponents
        self.reported: dict[str, str] = {}
        self.away = False

    def request(self) -> Match:
        if self.away:
            raise PlayerUnavailable("nobody is there")
        return self.league.request(self._home, self._opponents)

    def opponent(self, match: Match) -> Opponent:
        policy, *others = (None if name == self._home else self._policies[name] for name in match.names[1:])
        return Opponent(match.id, policy, seat=seat_of(match.branch), others=tuple(others))

    def report(self, match: Match, result: MatchResult) -> None:
        assert match.id not in self.reported
        self.reported[match.id] = result.outcomes() if len(result.returns) else ""
        if len(result.returns):
            self.league.report(match, result.outcomes())
        else:
            self.league.abort(match)

    def between_moves(self) -> None:
        pass


class Hall:
    """The sessions of a gateway; `main` always plays paper, its frozen opponent, if there is one, rock."""

    def __init__(
        self,
        *,
        opponent: str | None = "rock",
        sides: Sequence[tuple[str, ...]] = RED_AND_BLUE,
        tables: int = 1,
        match_games: int = 2,
        length: int = 2,
        segment: int = 1000,
        policy: Policy | None = None,
        policies: Mapping[str, Policy] | None = None,
    ) -> None:
        self.sides, self.policies = tuple(sides), policies or {"rock": always(ROCK)}
        self.league = MemoryLeague(seed=1)
        for name in self.policies:
            self.league.add_player(name, "self_play", model=ModelRef(name, 0), frozen=True)
        self.seating = Seating(Turns({}, 1000.0))
        self.player = MatchPlayer(self.seating, self.sides, segment, 1, Timing(), patience=0.0)
        self._settings = tables, match_games, length
        kind = ("self_play", {}) if opponent is None else ("fixed", {"opponent": opponent})
        self.matches, self.host = self.learns("main", policy or always(PAPER), *kind)

    def learns(
        self, name: str, policy: Policy, kind: str = "self_play", config: Mapping[str, Any] | None = None
    ) -> tuple[SessionMatches, Host]:
        """Add a learning player, and its matches."""
        tables, match_games, length = self._settings
        self.league.add_player(name, kind, config)
        host = Host(self.league, name, self.policies, len(self.sides) - 1)
        experience = Experience(
            policy, length, Rewards(), self.player.generator, self.player.changed, legal_actions=True
        )
        experience.load(policy.state_dict(), 0)
        seats = SessionTables(name, tables, len(self.sides), experience, self.player.changed)
        self.seating.add(seats)
        return SessionMatches(seats, match_games, host), host

    @property
    def experience(self) -> Experience:
        """Return the experience of `main`."""
        return self.matches.play.experience

    def session(self, number: int = 0) -> Game:
        """Begin a session."""
        loop = asyncio.get_running_loop()
        return Game(
            f"s{number}", self.player.of_session(), spec_of(OBSERVATIONS), Rewards(), loop, masks=Masks(Discrete(3))
        )

    def counters(self) -> dict[str, int]:
        """Check that the league's counters add up; return them."""
        found = dict(self.league.state.counters)
        ended = sum(found.get(how, 0) for how in ("counted", "expired", "aborted"))
        assert found["issued"] == ended + len(self.league.state.matches), found
        return found


async def throw(game: Game) -> dict[str, int]:
    """Let both sides throw at once and reward them; return side -> throw."""
    red, blue = await asyncio.gather(game.act([0.0, 0.0], "red"), game.act([0.0, 0.0], "blue"))
    gain = float((red - blue + 1) % 3 - 1)
    game.reward(gain, "red")
    game.reward(-gain, "blue")
    return {"red": int(red), "blue": int(blue)}


async def whole(game: Game) -> dict[str, int]:
    """Play a session of one throw."""
    thrown = await throw(game)
    game.finish()
    return thrown
