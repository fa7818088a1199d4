"""Games in turns of two or more players, many at a time: the API that every source of such games implements.

A game is a sequence of turns, as in OpenSpiel's State and PettingZoo's AEC: one player moves at a time, chance moves by
itself, and of two simultaneous moves the second is taken without seeing the first. The loop is

    turn = games.reset()
    while True:
        action = ...                  # int64 [N]: game i's for player turn.to_move[i], where turn.action_mask[i] allows
        turn = games.step(action)     # the rest of `turn` already belongs to the next game where turn.done
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from gymnasium import spaces

from envs.two_player.chance import Chance
from warren.errors import ConfigurationError, IllegalAction

PLAYERS = 2
ZERO_SUM_TOLERANCE = 1e-3  # by which the two returns of a game may fail to cancel: float32 rewards add up


@dataclass(slots=True)
class Turn:
    """The next decisions of N games of P players and the results of their last moves. The arrays are the caller's."""

    to_move: np.ndarray  # int8 [N]: the player's number, 0 to P - 1
    observation: np.ndarray  # float32 [N, ...], of images uint8: what the player to move knows
    action_mask: np.ndarray  # bool [N, A]: its legal actions; at least one
    reward: np.ndarray  # float32 [N, P]: of all players, for the move just made and the chance that followed
    done: np.ndarray  # bool [N]: that move ended the game; the fields above `reward` are the next game's first turn
    truncated: np.ndarray  # bool [N]: it was cut off (a limit on its length) rather than decided; implies done


@dataclass(slots=True)
class FinishedGames:
    """K games in the order of their ends."""

    index: np.ndarray  # int64 [K]: which of the N games
    returns: np.ndarray  # float32 [K, P]: the sum of each player's rewards
    length: np.ndarray  # int64 [K]: moves of all players, without chance's


class TurnVectorEnv(ABC):
    """N copies of one game, stepped together in this process; a game that ends starts anew within the same step.

    Of `players` P, each belongs to one of `teams`, tuples of players; where there are none, each is one of its own.
    `team_of` int64 [P] is each player's.
    `zero_sum`: the returns of all players cancel, which is checked at every game's end.

    Subclasses implement `_reset` and `_step`. The same seed and actions give the same games again. `max_return` is the
    largest return of a game, in absolute value, where it is known: what a league's intervals are computed from.
    `chance` (chance.py) decides all that is left to chance, where each game can be played again by itself from its own
    seed; None where it cannot. `all_legal`: every action always is, whatever the mask would say.

    What the class keeps for itself begins with two underscores, so that a subclass may call its own as it likes.
    """

    max_return: float | None = None
    chance: Chance | None = None
    all_legal = False

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
        self._rows = self.__rows = np.arange(num_envs)  # the first is for subclasses
        self.__returns = np.zeros((num_envs, players), np.float32)
        self.__steps = 0
        self.__began = np.zeros(num_envs, np.int64)  # steps that had been made before each game under way
        self.__finished: list[FinishedGames] = []
        self.__turn: Turn | None = None

    def reset(self, seeds: Sequence[int] | np.ndarray | None = None) -> Turn:
        """Begin N new games; those under way are dropped. `reward`, `done` and `truncated` are zero.

        `seeds`: uint64 [N], of each game one that `chance.seeds` had: with the same actions it is the same game again.
        Raises ConfigurationError where games have no seeds of their own.
        """
        self.__returns[:] = 0
        self.__began[:] = self.__steps
        if seeds is None:
            self.__turn = self._reset()
            return self.__turn
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
        """int64 [N]: moves that were made in the games under way."""
        lengths: np.ndarray = self.__steps - self.__began
        return lengths

    def step(self, action: np.ndarray) -> Turn:
        """Make one move in every game; action int64 [N]. Raises IllegalAction, before any game has moved."""
        if self.__turn is None:
            raise ConfigurationError(f"environment {self.name!r}: call reset() before step()")
        action = np.asarray(action)
        self.__check(action, self.__turn)
        turn = self.__turn = self._step(action)
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
        """Return what each team got a player on average, float32 [K, teams], of `returns` float32 [K, P]."""
        return team_returns(returns, self.teams)

    def gained(self, returns: np.ndarray, team: int = 0) -> np.ndarray:
        """Return what `team` got a player, float32 [K], of `returns` float32 [K, P].

        Of two teams half of what it got more than the other.
        """
        return decided_by(self.by_team(returns), np.full(len(returns), team))[:, 0]

    def text(self, index: int) -> str:
        """Return the knowledge of the player to move in game `index`, as text; by default the observation array."""
        assert self.__turn is not None
        return np.array2string(self.__turn.observation[index], threshold=200)

    def action_text(self, index: int, action: int) -> str:
        """Return a name for `action` in game `index`; its number unless a game has one."""
        return str(action)

    def last_text(self, index: int) -> str:
        """Return the last game's end in slot `index` as text for a person; "" where that is not kept."""
        return ""

    def picture(self, index: int) -> np.ndarray:
        """uint8 [height, width, 3] of game `index`. Raises ConfigurationError where the game draws nothing."""
        raise ConfigurationError(f"environment {self.name!r} draws no pictures; its games are shown as text")

    def last_picture(self, index: int) -> np.ndarray | None:
        """Return uint8 [height, width, 3] of the last game's end in slot `index`; None where that is not kept."""
        return None

    def close(self) -> None:  # noqa: B027 (most sources hold nothing to close)
        """Let go of what the games hold."""

    @abstractmethod
    def _reset(self) -> Turn: ...

    @abstractmethod
    def _step(self, action: np.ndarray) -> Turn: ...

    def _no_outcome(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(reward, done, truncated) of a reset, or to write into."""
        flags = np.zeros((2, self.num_envs), np.bool_)
        return np.zeros((self.num_envs, self.players), np.float32), flags[0], flags[1]

    def __check(self, action: np.ndarray, turn: Turn) -> None:
        if action.shape != (self.num_envs,) or action.dtype.kind not in "iu":
            raise IllegalAction(
                f"environment {self.name!r}: action must be integer [{self.num_envs}], "
                f"is {action.dtype} {list(action.shape)}"
            )
        # argmin and argmax take a quarter of what min and max take, count_nonzero of what all does.
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


def _told(returns: np.ndarray) -> str:
    return " and ".join(f"{one:g}" for one in returns)


def team_returns(returns: np.ndarray, teams: Sequence[Sequence[int]]) -> np.ndarray:
    """Return what each of `teams` got a player on average, float32 [K, teams], of `returns` float32 [K, P]."""
    if len(teams) == returns.shape[1]:  # each player is a team of its own, in their order
        return returns
    return np.stack([returns[:, list(team)].mean(axis=1) for team in teams], axis=1)


def decided_by(returns: np.ndarray, home: np.ndarray) -> np.ndarray:
    """Return what says who won, of the `returns` of teams float32 [K, T], from the view of the teams `home` int64 [K].

    Of two teams float32 [K, 1], half of what it got more than the other, which is its return where theirs cancel: not
    where rewards do not, or where teams differ in size. Of more teams all returns, its own first, then those of the
    teams that follow in turn.
    """
    games, teams = np.arange(len(home)), returns.shape[1]
    by_place: np.ndarray = returns[games[:, None], (home[:, None] + np.arange(teams)) % teams]
    return by_place if teams != PLAYERS else (by_place[:, :1] - by_place[:, 1:]) / 2


TwoPlayerVectorEnv = TurnVectorEnv  # its name since there were games of two players alone
