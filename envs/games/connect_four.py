"""OpenSpiel's Connect Four in arrays: a few operations of numpy move all games; OpenSpiel steps one state at a time.

The game is the same to the last bit: tests compare moves, observations, masks and rewards with OpenSpiel's. OpenSpiel
still names the moves and shows the board.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from envs.two_player.chance import Chance
from envs.two_player.vector_env import PLAYERS, Turn, TwoPlayerVectorEnv

ROWS, COLUMNS = 6, 7
CELLS = ROWS * COLUMNS  # numbered from the lowest row's left end, row by row
# A board has a bit per cell, column by column. A bit above each column stays empty, so that no line wraps at the edge.
_CELL = np.arange(CELLS)
_BIT = np.left_shift(np.uint64(1), (_CELL % COLUMNS * (ROWS + 1) + _CELL // COLUMNS).astype(np.uint64))
_NEXT = np.array([[1], [ROWS + 1], [ROWS], [ROWS + 2]], np.uint64)  # bits to the next cell: up, right, falling, rising
_NEXT_BUT_ONE = 2 * _NEXT
_NOBODYS = np.repeat(np.array([0, 0, 1], np.float32), CELLS)  # the observation of an empty board
_EGOCENTRIC = np.array([[1, 0, 2], [0, 1, 2]])  # order of the planes as seen by the player to move


class ConnectFour(TwoPlayerVectorEnv):
    """N games. Observations are float32 [3, 6, 7]: the first player's discs, the second's and empty cells; with
    `egocentric`, the opponent's discs, one's own and empty cells. Row 0 is the lowest."""

    max_return = 1.0
    chance: Chance  # decides nothing here, but gives games their seeds

    def __init__(self, game: Any, num_envs: int, seed: int, egocentric: bool = False) -> None:
        """`game` is OpenSpiel's, used for texts."""
        super().__init__("openspiel:connect_four", num_envs, (PLAYERS + 1, ROWS, COLUMNS), COLUMNS)
        self._game, self._egocentric = game, egocentric
        self.chance = Chance(num_envs, seed)
        # Each array holds all games in one row, so that a single index finds a place in the fewest operations.
        self._boards = np.zeros(num_envs * PLAYERS, np.uint64)
        self._planes = np.zeros(num_envs * (PLAYERS + 1) * CELLS, np.float32)  # the first player's discs first
        self._free = np.zeros(num_envs * COLUMNS, np.int64)  # the cell where a column's next disc will lie
        self._moves = np.zeros(num_envs * CELLS, np.int8)
        self._count = np.zeros(num_envs, np.int64)
        self._mover = np.zeros(num_envs, np.int64)
        # The offset of each game in these arrays.
        self._board, self._column, self._move = (self._rows * size for size in (PLAYERS, COLUMNS, CELLS))
        self._plane = self._rows * (PLAYERS + 1) * CELLS
        self._empty_plane = self._plane + PLAYERS * CELLS
        self._last: dict[int, list[int]] = {}  # columns of the last game that ended, by slot

    def history(self, index: int) -> list[int]:
        """Return the columns of game `index` so far."""
        moves: list[int] = self._moves[index * CELLS :][: self._count[index]].tolist()
        return moves

    def text(self, index: int) -> str:
        """Return OpenSpiel's own text of the board."""
        state = self._state(self.history(index))
        return str(state.observation_string(state.current_player()))

    def action_text(self, index: int, action: int) -> str:
        """Return OpenSpiel's name of the action."""
        state = self._state(self.history(index))
        return str(state.action_to_string(state.current_player(), action))

    def last_text(self, index: int) -> str:
        """Return OpenSpiel's text of the whole last board."""
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
        mover = self._mover
        column = self._column + action.astype(np.int64, copy=False)
        cell = self._free[column]
        self._free[column] = cell + COLUMNS
        self._planes[self._plane + mover * CELLS + cell] = 1.0
        self._planes[self._empty_plane + cell] = 0.0
        board = self._board + mover
        self._boards[board] = discs = self._boards[board] | _BIT[cell]
        self._moves[self._move + self._count] = action
        self._count += 1
        won = _has_four(discs)
        reward, _, truncated = self._no_outcome()
        (winners,) = won.nonzero()
        if len(winners):
            reward[winners] = -1.0
            reward[winners, mover[winners]] = 1.0
        done = won | (self._count == CELLS)
        (ended,) = done.nonzero()
        if len(ended):
            self._last |= {i: self.history(i) for i in ended.tolist()}
            self._begin(ended)
        return self._turn_of(reward, done, truncated)

    def _begin(self, games: np.ndarray) -> None:
        self.chance.begin(games)
        self._boards.reshape(-1, PLAYERS)[games] = 0
        self._planes.reshape(self.num_envs, -1)[games] = _NOBODYS
        self._free.reshape(-1, COLUMNS)[games] = _CELL[:COLUMNS]
        self._count[games] = 0

    def _turn_of(self, reward: np.ndarray, done: np.ndarray, truncated: np.ndarray) -> Turn:
        self._mover = self._count & 1
        planes = self._planes.reshape(-1, PLAYERS + 1, ROWS, COLUMNS)
        observation = planes[self._rows[:, None], _EGOCENTRIC[self._mover]] if self._egocentric else planes.copy()
        action_mask = self._free.reshape(-1, COLUMNS) < CELLS
        return Turn(self._mover.astype(np.int8), observation, action_mask, reward, done, truncated)


def _has_four(boards: np.ndarray) -> np.ndarray:
    """Return which of one player's boards, uint64 [N], hold four in a row, bool [N]."""
    two = boards & (boards >> _NEXT)  # [4, N], by direction
    four: np.ndarray = np.bitwise_or.reduce(two & (two >> _NEXT_BUT_ONE), axis=0) != 0
    return four
