"""Log of the moves in a sampler's games, from which any of these games can be played again.

log = GameLog(games, seed)
action = policy.step(..., noise=log.noise(rows))      # decisions follow from a seed of the game as well
log.moved(action, weights)                            # before games.step(action)
played = log.pop(finished, seats)                     # after it, where games ended
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np

from envs import Chance
from envs.two_player.chance import decision_noise
from envs.two_player.vector_env import FinishedGames


class Weights(NamedTuple):
    """Weights of `player` at `version`, known by their `digest` (agents.checkpoints.fingerprint)."""

    player: str
    version: int
    digest: int


@dataclass(frozen=True)
class PlayedGame:
    """One game, from its beginning to its end; its seed and its actions reproduce it."""

    seed: int  # seed of all that chance decided
    drawn_by: int  # seed of the noise by which decisions were drawn
    home: int  # the seat of the home player
    actions: np.ndarray  # int64 [moves], of both seats in their order
    returns: np.ndarray  # float32 [2], of both seats
    weights: tuple[tuple[int, Weights], ...]  # the home player's: (move from which on they played, weights)


@dataclass
class Recording:
    """Games to be recorded, with the home player in seat 0; `games` are those that have ended."""

    weights: Weights  # the home player's
    seed: int  # seed of the noise of all decisions
    games: list[PlayedGame] = field(default_factory=list)


class Seeds(Protocol):
    """The part of envs.Chance that a log uses."""

    seeds: np.ndarray


class SeededGames(Protocol):
    """The part of TwoPlayerVectorEnv that a log uses."""

    num_envs: int
    num_actions: int

    @property
    def lengths(self) -> np.ndarray:
        """int64 [N]: number of moves made in each game under way."""
        ...

    @property
    def chance(self) -> Seeds | None:
        """The games' seeds; None if they have none of their own."""
        ...


class GameLog:
    """The moves of all games under way; `seed` is that of the noise of their decisions."""

    def __init__(self, games: SeededGames, seed: int) -> None:
        assert games.chance is not None
        self._games, self._chance = games, games.chance
        self._rows = np.arange(games.num_envs)
        self._noise = Chance(games.num_envs, seed)
        self._steps: list[tuple[np.ndarray, Weights]] = []  # actions int64 [N], and the home player's weights
        self.restart()

    def restart(self) -> None:
        """Forget all moves: all games have begun anew."""
        self._steps.clear()
        self._begun = np.zeros(len(self._rows), np.int64)  # [N]: index in _steps of each game's first move
        self._seeds = self._chance.seeds.copy()
        self._noise.begin(self._rows)

    def noise(self, rows: np.ndarray) -> np.ndarray:
        """Return the noise float32 [K, A] by which the next moves of these games are drawn."""
        return decision_noise(self._noise.seeds[rows], self._games.lengths[rows], self._games.num_actions)

    def moved(self, action: np.ndarray, weights: Weights) -> None:
        """Record the moves that are about to be made, int64 [N]; the log keeps the array itself."""
        self._steps.append((action, weights))

    def pop(self, finished: FinishedGames, home: np.ndarray, wanted: np.ndarray) -> list[PlayedGame | None]:
        """Return the K games that the last move ended, None for those not in `wanted` bool [K].

        `home` int64 [K]: the home player's seats.
        """
        played = [
            self._played(slot, seat, returns) if keep else None
            for slot, seat, returns, keep in zip(
                finished.index.tolist(), home.tolist(), finished.returns, wanted.tolist(), strict=True
            )
        ]
        self._begun[finished.index] = len(self._steps)
        self._seeds[finished.index] = self._chance.seeds[finished.index]
        self._noise.begin(finished.index)
        if oldest := int(self._begun.min()):
            del self._steps[:oldest]
            self._begun -= oldest
        return played

    def _played(self, slot: int, home: int, returns: np.ndarray) -> PlayedGame:
        steps = self._steps[int(self._begun[slot]) :]
        weights = [(0, steps[0][1])]
        if steps[-1][1] is not steps[0][1]:  # weights are never set back
            weights += [(move, used) for move, (_, used) in enumerate(steps) if move and used is not steps[move - 1][1]]
        actions = np.array([action[slot] for action, _ in steps], np.int64)
        seed, drawn_by = int(self._seeds[slot]), int(self._noise.seeds[slot])
        return PlayedGame(seed, drawn_by, home, actions, returns.copy(), tuple(weights))
