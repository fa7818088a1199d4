"""One group of a league's games, N for each player that actors play for: its calls to an actor, its steps by answers.

The actor's answer names the player whose games are stepped next; the other players' games wait.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import envs
from agents.trees import not_finite
from envs.construct import blame
from warren.errors import ConfigurationError
from workers.config.league import LeagueConfig
from workers.env.group import STAMP


class MatchGroup:
    """A league's counterpart of Group, used by the same loop; `name` is unique.

    Raises ConfigurationError for errors of the games.
    """

    def __init__(self, name: str, league: LeagueConfig, num_games: int, seed: int) -> None:
        self.name = name
        self._league, self._num_games, self._seed = league, num_games, seed
        self._games: dict[str, envs.TwoPlayerVectorEnv] = {}  # by player
        self._step = 0  # number of the step that is asked for next
        self._told: dict[str, Any] = {"player": None}

    @property
    def steps(self) -> int:
        """The number of calls that were answered so far."""
        return self._step

    def call(self) -> dict[str, Any]:
        """Return the call to make (leagues/served_games.py); it stays the same until the next `step`."""
        return {"group": self.name, "step": self._step, "games": self._num_games, **self._told, "written_by": STAMP}

    def step(self, answer: dict[str, Any]) -> None:
        """Step or begin the games of the player that the actor's answer names."""
        self._step += 1
        if "player" not in answer:  # the actor that is asked next lets them begin anew
            self._told = {"player": None}
            return
        player, begins = answer["player"], "begin" in answer
        games = self._of(player)
        with blame(f"environment {self._league.env!r}: {'reset' if begins else 'step'}()"):
            turn = games.reset() if begins else games.step(answer["action"])
        self._check(turn)
        ended = games.pop_finished() if turn.done.any() else None
        chance = games.chance if self._league.records_matches else None
        self._told = {
            "player": player,
            "to_move": turn.to_move,
            "observation": turn.observation,
            "action_mask": turn.action_mask,
            "reward": turn.reward,
            "done": turn.done,
            "finished": None if ended is None else [ended.index, ended.returns, ended.length],
            "seeds": None if chance is None else chance.seeds,
        }

    def close(self) -> None:
        """Close the games."""
        for games in self._games.values():
            games.close()

    def _check(self, turn: envs.Turn) -> None:
        for field in ("observation", "reward"):
            for wrong in not_finite(getattr(turn, field), field):
                raise ConfigurationError(f"environment {self._league.env!r}: step() gave wrong numbers: {wrong}")

    def _of(self, player: str) -> envs.TwoPlayerVectorEnv:
        if player not in self._games:
            # No two players' games may be the same.
            seed = int(np.random.SeedSequence([self._seed, len(self._games)]).generate_state(1)[0] >> 1)
            self._games[player] = envs.make_two_player(
                self._league.env, self._num_games, seed, **self._league.env_kwargs
            )
        return self._games[player]
