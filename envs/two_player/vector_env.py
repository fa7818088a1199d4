"""Games in turns of two or more players, many at a time: the API that every source of such games implements.

A game is a sequence of turns, as in OpenSpiel's State and PettingZoo's AEC. One player moves at a time, and chance
moves by itself. Of two simultaneous moves the second is made without seeing the first. The loop is

    turn = games.reset()
    while True:
        action = ...                  # int64 [N]: game i's for player turn.to_move[i], where turn.action_mask[i] allows
        turn = games.step(action)     # the rest of `turn` already belongs to the next game where turn.done
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces

from envs.two_player.chance import Chance
from warren.errors import ConfigurationError, IllegalAction

PLAYERS = 2
ZERO_SUM_TOLERANCE = 1e-3  # for the sum of a game's two returns: float32 rewards add up


@dataclass(slots=True)
class Turn:
    """The next decisions of N games of P players and the results of their last moves. The caller owns the arrays."""

    to_move: np.ndarray  # int8 [N]: the player's number, 0 to P - 1
    observation: np.ndarray  # float32 [N, ...], or uint8 for images: what the player to move knows
    action_mask: np.ndarray  # bool [N, A]: its legal actions; at least one
    reward: np.ndarray  # float32 [N, P]: all players' rewards for the move just made and the chance that followed
    done: np.ndarray  # bool [N]: that move ended the game; the fields above `reward` are the next game's first turn
    truncated: np.ndarray  # bool [N]: the game was cut off (a limit on its length) rather than decided; implies done


@dataclass(slots=True)
class FinishedGames:
    """K games in the order in which they ended."""

    index: np.ndarray  # int64 [K]: which of the N games
    returns: np.ndarray  # float32 [K, P]: the sum of each player's rewards
    length: np.ndarray  # int64 [K]: moves of all players, without chance's


class TurnVectorEnv(ABC):
    """N copies of one game, stepped together in this process; a game that ends starts anew within the same step.

    There are `players` P, each in one of `teams`, tuples of players; without teams, each player is a team of its own.
    `team_of` int64 [P] is the team of each player.
    `zero_sum`: the returns of all players cancel, which is checked at every game's end.

    Subclasses implement `_reset` and `_step`. The same seed and actions give the same games again. `max_return` is the
    largest absolute return of a game, if it is known; a league computes intervals from it. `chance` (chance.py) decides
    all that is left to chance, if each game can be played again by itself from its own seed; None if it cannot.
    `all_legal`: all actions are always legal, so that masks need not be checked. `hidden_moves`: a player learns of
    others' moves by its observations alone, so that a person who plays is not told them.

    Private names of this class begin with two underscores, so that a subclass may choose its own freely.
    """

    max_return: float | None = None
    chance: Chance | None = None
    all_legal = False
    hidden_moves = False

    def __init__(
        self,
        name: str,
        num_envs: int,
        observation_shape: tuple[int, ...],
        num_actions: int,
        *,
        images: bool = False,
        players: int = PLAYERS,
        teams: Sequence[Sequence[int]] | None = None,
        zero_sum: bool = True,
    ) -> None:
        """`images`: observations are uint8 from 0 to 255 in place of float32."""
        if num_envs < 1:
            raise ConfigurationError(f"num_envs={num_envs} of environment {name!r} must be at least 1")
        self.name, self.num_envs, self.num_actions = name, num_envs, num_actions
        self.players, self.zero_sum = players, zero_sum
        self.teams = tuple((player,) for player in range(players)) if teams is None else tuple(map(tuple, teams))
        if len(self.teams) < PLAYERS or not all(self.teams) or sorted(sum(self.teams, ())) != list(range(players)):
            raise ConfigurationError(
                f"environment {name!r}: teams={self.teams} must be two or more and have each player from 0 to "
                f"{players - 1} once"
            )
        self.team_of = np.array([next(t for t, team in enumerate(self.teams) if p in team) for p in range(players)])
        self.single_observation_space = (
            spaces.Box(0, 255, observation_shape, np.uint8)
            if images
            else spaces.Box(-np.inf, np.inf, observation_shape, np.float32)
        )
        self.single_action_space = spaces.Discrete(num_actions)
        self._rows = self.__rows = np.arange(num_envs)  # the first name is for subclasses
        self.__returns = np.zeros((num_envs, players), np.float32)
        self.__steps = 0
        self.__began = np.zeros(num_envs, np.int64)  # steps made before each present game
        self.__finished: list[FinishedGames] = []
        self.__turn: Turn | None = None

    def reset(self, seeds: Sequence[int] | np.ndarray | None = None) -> Turn:
        """Begin N new games and drop those under way. `reward`, `done` and `truncated` are zero.

        `seeds`: uint64 [N], from earlier `chance.seeds`, one per game: with the same actions each plays the same game
        again. Raises ConfigurationError if games have no seeds of their own.
        """
        self.__returns[:] = 0
        self.__began[:] = self.__steps
        if seeds is None:
            turn = self._reset()
            if not isinstance(turn, Turn):
                raise ConfigurationError(f"environment {self.name!r}: _reset() gave {_not_a_turn(turn)}")
            self.__turn = turn
            return turn
        if self.chance is None:
            raise ConfigurationError(
                f"environment {self.name!r} cannot begin a game from a seed of its own; give its class "
                "`self.chance = envs.Chance(num_envs, seed)`, from which it draws all that chance decides"
            )
        self.chance.given = np.asarray(seeds, np.int64)
        try:
            self.__turn = self._reset()
        finally:
            self.chance.given = None
        return self.__turn

    @property
    def lengths(self) -> np.ndarray:
        """int64 [N]: moves made in the games under way."""
        lengths: np.ndarray = self.__steps - self.__began
        return lengths

    def step(self, action: np.ndarray) -> Turn:
        """Make one move in every game; action int64 [N]. Raises IllegalAction before any game has moved."""
        if self.__turn is None:
            raise ConfigurationError(f"environment {self.name!r}: call reset() before step()")
        action = np.asarray(action)
        self.__check(action, self.__turn)
        turn = self.__turn = self._step(action)
        if not isinstance(turn, Turn) or not isinstance(turn.reward, np.ndarray):
            raise ConfigurationError(f"environment {self.name!r}: _step() gave {_not_a_turn(turn)}")
        self.__returns += turn.reward
        self.__steps += 1
        (ended,) = turn.done.nonzero()
        if len(ended):
            self.__finish(ended)
        return turn

    def pop_finished(self) -> FinishedGames:
        """Return the games that ended since the last call."""
        finished, self.__finished = self.__finished, []
        if len(finished) == 1:
            return finished[0]
        empty = FinishedGames(np.zeros(0, np.int64), np.zeros((0, self.players), np.float32), np.zeros(0, np.int64))
        finished = finished or [empty]
        return FinishedGames(
            np.concatenate([f.index for f in finished]),
            np.concatenate([f.returns for f in finished]),
            np.concatenate([f.length for f in finished]),
        )

    def by_team(self, returns: np.ndarray) -> np.ndarray:
        """Return each team's mean return per player, float32 [K, teams], from `returns` float32 [K, P]."""
        return team_returns(returns, self.teams)

    def gained(self, returns: np.ndarray, team: int = 0) -> np.ndarray:
        """Return the gain of `team`, float32 [K], from `returns` float32 [K, P]: its mean return per player.

        With two teams it is half of the difference to the other team's.
        """
        return decided_by(self.by_team(returns), np.full(len(returns), team))[:, 0]

    def text(self, index: int) -> str:
        """Return the knowledge of the player to move in game `index`, as text; by default the observation array."""
        assert self.__turn is not None
        return np.array2string(self.__turn.observation[index], threshold=200)

    def action_text(self, index: int, action: int) -> str:
        """Return a name for `action` in game `index`: its number, unless a game has names."""
        return str(action)

    def last_text(self, index: int) -> str:
        """Return the end of the last game in slot `index` as text for a person; "" if it is not kept."""
        return ""

    def picture(self, index: int) -> np.ndarray:
        """Return a picture of game `index`, uint8 [height, width, 3]. Raises ConfigurationError if there is none."""
        raise ConfigurationError(f"environment {self.name!r} draws no pictures; its games are shown as text")

    def last_picture(self, index: int) -> np.ndarray | None:
        """Return a picture of the last game's end in slot `index`, uint8 [height, width, 3]; None if it is not kept."""
        return None

    def close(self) -> None:  # noqa: B027 (most sources hold nothing to close)
        """Release what the games hold."""

    @abstractmethod
    def _reset(self) -> Turn: ...

    @abstractmethod
    def _step(self, action: np.ndarray) -> Turn: ...

    def _no_outcome(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return (reward, done, truncated) of a reset, or to write results to."""
        flags = np.zeros((2, self.num_envs), np.bool_)
        return np.zeros((self.num_envs, self.players), np.float32), flags[0], flags[1]

    def __check(self, action: np.ndarray, turn: Turn) -> None:
        if action.shape != (self.num_envs,) or action.dtype.kind not in "iu":
            raise IllegalAction(
                f"environment {self.name!r}: action must be integer [{self.num_envs}], "
                f"is {action.dtype} {list(action.shape)}"
            )
        # argmin and argmax take a quarter of the time of min and max, count_nonzero that of all.
        inside = action[action.argmin()] >= 0 and action[action.argmax()] < self.num_actions
        if inside and (self.all_legal or np.count_nonzero(turn.action_mask[self.__rows, action]) == self.num_envs):
            return
        inside = (action >= 0) & (action < self.num_actions)
        legal = inside & turn.action_mask[self.__rows, np.where(inside, action, 0)]
        if not legal.all():
            i = int(np.flatnonzero(~legal)[0])
            raise IllegalAction(
                f"environment {self.name!r}, game {i}: action {action[i]} of player {turn.to_move[i]} is illegal; "
                f"legal: {', '.join(map(str, np.flatnonzero(turn.action_mask[i])))} (mask logits with action_mask)"
            )

    def __finish(self, ended: np.ndarray) -> None:
        returns = self.__returns[ended]
        if not (finite := np.isfinite(returns)).all():
            raise ConfigurationError(
                f"environment {self.name!r}: a game ended with returns {_told(returns[~finite.all(axis=1)][0])}; give "
                "finite rewards (python -m envs.check finds the step that does not)"
            )
        surplus = returns.sum(axis=1) if self.zero_sum else np.zeros(1)
        if surplus.any() and (np.abs(surplus) > ZERO_SUM_TOLERANCE * np.maximum(1, np.abs(returns).max(axis=1))).any():
            worst = returns[np.abs(surplus).argmax()]
            raise ConfigurationError(
                f"environment {self.name!r} is not zero-sum: a game ended with returns "
                f"{_told(worst)}; leagues of two players need a game in which one's gain "
                "is the other's loss, and a game of more says zero_sum=False to its base class"
            )
        self.__finished.append(FinishedGames(ended, returns, self.__steps - self.__began[ended]))
        self.__returns[ended] = 0
        self.__began[ended] = self.__steps


def _not_a_turn(given: Any) -> str:
    if isinstance(given, Turn):
        return f"a Turn whose reward is {given.reward!r}; it must be an array"
    return f"{None if given is None else f'a {type(given).__name__}'}; it must give an envs.Turn"


def _told(returns: np.ndarray) -> str:
    return " and ".join(f"{one:g}" for one in returns)


def team_returns(returns: np.ndarray, teams: Sequence[Sequence[int]]) -> np.ndarray:
    """Return the mean return per player of each of `teams`, float32 [K, teams], from `returns` float32 [K, P]."""
    if len(teams) == returns.shape[1]:  # each player is a team of its own, in their order
        return returns
    return np.stack([returns[:, list(team)].mean(axis=1) for team in teams], axis=1)


def decided_by(returns: np.ndarray, home: np.ndarray) -> np.ndarray:
    """Return the values that decide who won, from `returns` of teams float32 [K, T], as seen by teams `home` int64 [K].

    With two teams, float32 [K, 1]: half of the difference between the home team's return and the other's. This is the
    home team's return if returns cancel; they do not if rewards do not, or if teams differ in size. With more teams all
    returns: the home team's first, then those of the teams that follow in turn.
    """
    games, teams = np.arange(len(home)), returns.shape[1]
    by_place: np.ndarray = returns[games[:, None], (home[:, None] + np.arange(teams)) % teams]
    return by_place if teams != PLAYERS else (by_place[:, :1] - by_place[:, 1:]) / 2


TwoPlayerVectorEnv = TurnVectorEnv  # its name from when all games had two players
