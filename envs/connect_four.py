"""OpenSpiel's Connect Four by arrays: all games move in a few operations of numpy, OpenSpiel's states one by one.

The same game to the last bit, as tests hold it to OpenSpiel's: moves, observations, masks, rewards. OpenSpiel still
names the moves and shows the board.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from envs.chance import Chance
from envs.two_player import PLAYERS, Turn, TwoPlayerVectorEnv

ROWS, COLUMNS = 6, 7
# A board is a bit a cell, column by column. A bit above each column stays empty, so that no line goes round the edge.
_UP, _RIGHT, _FALLING, _RISING = 1, ROWS + 1, ROWS, ROWS + 2  # bits to the next cell, by direction


class ConnectFour(TwoPlayerVectorEnv):
    """N games. Observations are float32 [3, 6, 7]: the first player's discs, the second's and empty cells; with
    `egocentric`, the other's, one's own and empty cells. Row 0 is the lowest."""

    max_return = 1.0
    chance: Chance  # which decides nothing here, but gives games their seeds

    def __init__(self, game: Any, num_envs: int, seed: int, egocentric: bool = False) -> None:
        """`game` is OpenSpiel's, for texts."""
        super().__init__("openspiel:connect_four", num_envs, (PLAYERS + 1, ROWS, COLUMNS), COLUMNS)
        self._game, self._egocentric = game, egocentric
        self.chance = Chance(num_envs, seed)
        self._boards = np.zeros((num_envs, PLAYERS), np.uint64)
        self._discs = np.zeros((num_envs, PLAYERS, ROWS, COLUMNS), np.float32)
        self._heights = np.zeros((num_envs, COLUMNS), np.int64)
        self._moves = np.zeros((num_envs, ROWS * COLUMNS), np.int8)
        self._count = np.zeros(num_envs, np.int64)
        self._last: dict[int, list[int]] = {}  # columns of the last game that ended, by slot

    def history(self, index: int) -> list[int]:
        """The columns of game `index` so far."""
        moves: list[int] = self._moves[index, : self._count[index]].tolist()
        return moves

    def text(self, index: int) -> str:
        """OpenSpiel's own text of the board."""
        state = self._state(self.history(index))
        return str(state.observation_string(state.current_player()))

    def action_text(self, index: int, action: int) -> str:
        """OpenSpiel's name of the action."""
        state = self._state(self.history(index))
        return str(state.action_to_string(state.current_player(), action))

    def last_text(self, index: int) -> str:
        """OpenSpiel's text of the whole last board."""
        return str(self._state(self._last[index])) if index in self._last else ""

    def _state(self, moves: list[int]) -> Any:
        state = self._game.new_initial_state()
        for move in moves:
            state.apply_action(move)
        return state

    def _reset(self) -> Turn:
        self._begin(self._rows)
        return self._turn_of(*self._no_outcome())

    def _step(self, action: np.ndarray) -> Turn:
        rows, player = self._rows, self._count & 1
        height = self._heights[rows, action]
        self._discs[rows, player, height, action] = 1.0
        self._boards[rows, player] |= np.left_shift(np.uint64(1), (action * _RIGHT + height).astype(np.uint64))
        self._heights[rows, action] += 1
        self._moves[rows, self._count] = action
        self._count += 1
        won = _has_four(self._boards[rows, player])
        done = won | (self._count == ROWS * COLUMNS)
        reward, _, truncated = self._no_outcome()
        reward[rows, player] = won
        reward[rows, 1 - player] -= won
        if done.any():
            ended = np.flatnonzero(done)
            self._last |= {i: self.history(i) for i in ended.tolist()}
            self._begin(ended)
        return self._turn_of(reward, done, truncated)

    def _begin(self, games: np.ndarray) -> None:
        self.chance.begin(games)
        for part in (self._boards, self._discs, self._heights, self._count):
            part[games] = 0

    def _turn_of(self, reward: np.ndarray, done: np.ndarray, truncated: np.ndarray) -> Turn:
        to_move = (self._count & 1).astype(np.int8)
        observation = np.empty((self.num_envs, PLAYERS + 1, ROWS, COLUMNS), np.float32)
        first = 1 - to_move if self._egocentric else np.zeros_like(to_move)
        observation[:, 0] = self._discs[self._rows, first]
        observation[:, 1] = self._discs[self._rows, 1 - first]
        np.subtract(1.0, observation[:, 0] + observation[:, 1], out=observation[:, 2])
        return Turn(to_move, observation, self._heights < ROWS, reward, done, truncated)


def _has_four(boards: np.ndarray) -> np.ndarray:
    """Which of the boards uint64 [N] of one player hold four in a row."""
    found = np.zeros(len(boards), np.uint64)
    for step in (_UP, _RIGHT, _FALLING, _RISING):
        two = boards & (boards >> np.uint64(step))
        found |= two & (two >> np.uint64(2 * step))
    four: np.ndarray = found != 0
    return four
