"""Games of two sides on duplicate deals: each deal is played twice, with the same chance and the seats swapped.

    side = Side([policy], np.ones((2, 1)))            # or several policies, and how often each plays in either seat
    found = play_deals(games, side, other, 10_000, torch.Generator().manual_seed(1))
    estimate(found.mean(axis=0), bound=13.0, confidence=0.95)

Luck of the cards, which both sides get in turn, cancels, so fewer games tell two sides apart. A side may draw one of
several players before each game, so that a league's mixture plays as it is scored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch

from agents.policies import SeatMemories
from envs import Turn, TwoPlayerVectorEnv, make_two_player
from envs.sources import most_at_once
from league.empirical_game.confidence import confidence_sequence
from warren.errors import ConfigurationError
from workers.evaluation.cell_games import Player, Uniform

SEATS = 2
AT_ONCE = 512  # games, unless each is an engine of its own


@dataclass(frozen=True)
class Side:
    """K `players`, one of which is drawn before each game by `shares` float64 [2, K], a row per seat."""

    players: Sequence[Player]
    shares: np.ndarray
    greedy: bool = False  # the likeliest action always

    @classmethod
    def of(cls, player: Player | None) -> Side:
        """Return the side of one player in both seats; None: uniform play."""
        return cls([player or Uniform()], np.ones((SEATS, 1)))

    def draw(self, seat: int, games: int, generator: torch.Generator) -> np.ndarray:
        """Return the places of the players for so many games in `seat`, int64 [games]."""
        weights = torch.as_tensor(self.shares[seat], dtype=torch.float64)
        return torch.multinomial(weights, games, replacement=True, generator=generator).numpy()


class Mover(Protocol):
    """One team in each game of a batch."""

    def act(self, turn: Turn, rows: np.ndarray, action: np.ndarray) -> None: ...


class Seated:
    """A side as one team in the N games of a batch: the drawn player plays the whole team. `seats`: P of a game."""

    def __init__(self, side: Side, team: int, games: int, generator: torch.Generator, seats: int = SEATS) -> None:
        self._side, self._generator, self._games = side, generator, games
        self._drawn = side.draw(team, games, generator)
        self._memory = SeatMemories(seats * games)

    def act(self, turn: Turn, rows: np.ndarray, action: np.ndarray) -> None:
        """Write the moves of the games `rows` int64 [K] into `action` int64 [N]."""
        places = turn.to_move.astype(np.int64) * self._games + np.arange(self._games)
        for place in np.unique(self._drawn[rows]).tolist():
            mine = rows[self._drawn[rows] == place]
            player = self._side.players[place]
            acted = player.step(
                turn.observation[mine],
                self._memory.of(player, places[mine]),
                "greedy" if self._side.greedy else "sample",
                turn.action_mask[mine],
                generator=self._generator,
                value=False,
            )
            action[mine] = acted.action
            self._memory.keep(player, places[mine], acted.memory)


def games_for(deals: int, seed: int, env: str, env_kwargs: Mapping[str, Any]) -> TwoPlayerVectorEnv:
    """Make the games in which to play `deals` deals: as many as can be played at once, and no more than deals."""
    return make_two_player(env, min(deals, most_at_once(env) or AT_ONCE), seed, **env_kwargs)


def play_deals(
    games: TwoPlayerVectorEnv, first: Side, second: Side, deals: int, generator: torch.Generator
) -> np.ndarray:
    """Play each of `deals` deals twice; return the returns of `first`, float64 [2, deals], a row per seat.

    If games have no seeds of their own, chance is drawn anew for the second seat.
    """
    require_two_sides(games)
    found: list[np.ndarray] = []
    for _ in range(-(-deals // games.num_envs)):
        turn = games.reset()
        seeds = None if games.chance is None else games.chance.seeds.copy()
        in_first = play_once(games, turn, _seated(games, (first, second), generator))
        in_second = play_once(games, games.reset(seeds), _seated(games, (second, first), generator))
        found.append(np.stack([in_first, -in_second]))
    return np.concatenate(found, axis=1)[:, :deals]


def _seated(games: TwoPlayerVectorEnv, sides: Sequence[Side], generator: torch.Generator) -> list[Seated]:
    return [Seated(side, team, games.num_envs, generator, games.players) for team, side in enumerate(sides)]


def play_once(games: TwoPlayerVectorEnv, turn: Turn, movers: Sequence[Mover], gaining: int = 0) -> np.ndarray:
    """Play one game in each slot from its first `turn` on; return what the team `gaining` gained, float64 [N].

    `movers`: one per team.
    """
    games.pop_finished()
    returns, left = np.zeros(games.num_envs), np.ones(games.num_envs, np.bool_)
    while left.any():
        action = turn.action_mask.argmax(axis=1)  # any legal move, in slots whose game has ended
        team_to_move = games.team_of[turn.to_move]
        for team, mover in enumerate(movers):
            rows = np.flatnonzero(left & (team_to_move == team))
            if rows.size:
                mover.act(turn, rows, action)
        turn = games.step(action)
        if turn.done.any():
            finished = games.pop_finished()
            counted = left[finished.index]
            returns[finished.index[counted]] = games.gained(finished.returns[counted], gaining)
            left[finished.index] = False
    return returns


def require_two_sides(games: TwoPlayerVectorEnv) -> None:
    """Raise ConfigurationError for games of more than two sides."""
    if len(games.teams) != SEATS:
        raise ConfigurationError(
            f"environment {games.name!r} has {len(games.teams)} sides; games of two can be measured so, and players of "
            "more are rated by their placements: python -m league.replay"
        )


@dataclass(frozen=True)
class Estimate:
    """A mean of `count` values, and the interval (`lower`, `upper`) around it."""

    mean: float
    lower: float
    upper: float
    count: int

    def __str__(self) -> str:
        return f"{self.mean:+.4f} ({self.lower:+.4f} to {self.upper:+.4f})"


def estimate(values: np.ndarray, bound: float | None, confidence: float) -> Estimate:
    """Return the mean of independent `values` [K] within [-bound, bound], with its confidence sequence.

    `bound` None: the largest seen. Raises ConfigurationError for a value beyond the bound.
    """
    largest = float(np.abs(values).max(initial=0.0))
    if bound is not None and largest > bound * (1.0 + 1e-6):
        raise ConfigurationError(f"a game returned {largest:g}, beyond max_return={bound:g}; give a larger one")
    count, total, squares = len(values), float(values.sum()), float(np.square(values).sum())
    lower, upper = confidence_sequence(count, total, squares, bound or largest or 1.0, 1.0 - confidence)
    return Estimate(total / max(1, count), float(lower), float(upper), count)
