"""Plays many turn-based games at once between one learning policy and its opponents, for trajectories and results.

sampler = MatchSampler(games, policy, seed=1, unroll_length=16, tables=4)
sampler.seat(0, Opponent("main@12", its_policy))      # games of table 0 that begin from now on are against it
trajectory = sampler.collect(64)                      # 64 slots of the learning policy's decisions
for result in sampler.pop_results(): ...              # the opponent, and the return of every game
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import torch
from torch import Tensor

from agents.policies import Policy
from agents.trajectories import Trajectory
from envs import TwoPlayerVectorEnv
from workers.rollout.games.decisions import decide
from workers.rollout.games.game_log import GameLog
from workers.rollout.games.games_in_play import GamesInPlay
from workers.rollout.games.seat_map import Opponent
from workers.rollout.sampler import load_into

__all__ = ["MatchSampler", "Opponent"]


class MatchSampler(GamesInPlay):
    """One process's games of one learning policy; games carry over from one `collect` to the next.

    It is a Sampler whose budget is in trajectories; each carries the version of the weights that began it.
    """

    def __init__(
        self,
        games: TwoPlayerVectorEnv,
        policy: Policy,
        seed: int,
        unroll_length: int = 16,
        tables: int = 1,
        reward_scale: float = 1.0,
        max_age: int | None = None,
        player: str | None = None,
        fields: Collection[str] | None = None,
        minimax: float = 0.0,
    ) -> None:
        """See GamesInPlay. `player`: the learning policy's name in recorded games; None: no game is recorded."""
        self.games = games
        self._generator = torch.Generator().manual_seed(seed)
        first = games.reset()
        log = GameLog(games, seed) if player is not None else None
        super().__init__(
            *(games.num_envs, policy, unroll_length, tables, reward_scale, max_age, log, player or "", fields, minimax),
            games.teams,
        )
        self._turn = first

    def load(self, weights: Mapping[str, Tensor], version: int, behaviour: Mapping[str, float] | None = None) -> None:
        """See Sampler.load. Drop experience that is too old for `version`."""
        load_into(self.policy, weights, version, behaviour)
        self.renew(version)

    def restart(self) -> None:
        """See GamesInPlay.restart; the games begin anew at once."""
        super().restart()
        self.begin(self.games.reset())

    def collect(self, budget: int) -> Trajectory:
        """Play until `budget` trajectories are complete: T = unroll_length, N = budget."""
        while self._buffer.ready < budget:
            self.advance()
        return self.take(budget)

    def advance(self) -> bool:
        """Make one move in every game; return whether any game ended."""
        (action,) = decide([self], self._generator)
        turn = self.games.step(action)
        return self.follow(turn, self.games.pop_finished() if turn.done.any() else None)
