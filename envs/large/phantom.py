"""Phantom tic-tac-toe and dark hex: exact exploitability in seconds, plus the time for asking the policy."""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import cached_property

import numpy as np

from envs.large.game import BATCH, LargeGame, Plan, PolicyFunction, ask
from envs.large.phantom_abrupt import AbruptPayoffs
from envs.large.phantom_classical import ClassicalPayoffs
from envs.large.phantom_histories import DIGIT, Level, Payoffs, PhantomRules, levels
from warren.progress import shown

# (own stones bool [M, cells], the opponent's stones as far as seen bool [M, cells], the player) -> [M, ...]
View = Callable[[np.ndarray, np.ndarray, int], np.ndarray]
MOST_CELLS = 9
# With nine cells: GiB of memory, s of one core, and millions of information states; of a classical game, an abrupt one.
COSTS = ((1.5, 12.0, 6.0), (4.0, 110.0, 27.0))
FEW_CELLS = (0.5, 1.0, 0.1)
WHITE, EMPTY, BLACK, STATES = 3, 4, 5, 9  # OpenSpiel's numbers for a cell of dark hex


class PhantomGame(LargeGame):
    """Both players' private histories, and the payoffs of all games by their stones."""

    def __init__(
        self, name: str, rules: PhantomRules, view: View, shape: tuple[int, ...], abrupt: bool = False
    ) -> None:
        super().__init__(name, *(COSTS[abrupt] if rules.cells == MOST_CELLS else FEW_CELLS))
        self.rules, self._view, self._shape, self._abrupt = rules, view, shape, abrupt

    @cached_property
    def states(self) -> int:
        """Number of information states of both players."""
        return sum(level.shape[0] for own in self._levels for level in own)

    @cached_property
    def _levels(self) -> list[list[Level]]:
        both = [levels(self._payoffs, player) for player in range(2)]
        most = self.rules.cells
        return [list(shown(own, f"levels of player {player}'s histories", most)) for player, own in enumerate(both)]

    @cached_property
    def _payoffs(self) -> Payoffs:
        return AbruptPayoffs(self.rules) if self._abrupt else ClassicalPayoffs(self.rules)

    def plan(self, player: int, policy: PolicyFunction) -> Generator[None, None, Plan]:
        """Return the plan of `policy`, float64 [M, width] of each level; yield after each batch."""
        plan: Plan = []
        for level in self._levels[player]:
            reach = plan[-1].reshape(-1)[level.entry] if plan else np.ones(1)
            moves = np.empty(level.shape)
            for first in range(0, len(reach), BATCH):
                part = slice(first, first + BATCH)
                observation, action_mask = self.observe(player, level, part)
                probabilities = ask(self.name, policy, observation, action_mask)
                moves[part] = reach[part, None] * probabilities[action_mask].reshape(-1, level.shape[1])
                yield
            plan.append(moves)
        return plan

    def observe(self, player: int, level: Level, part: slice) -> tuple[np.ndarray, np.ndarray]:
        """Return (observations float32 [M, ...], legal actions bool [M, cells]) at some states of a level."""
        cells, rows = self.rules.cells, np.arange(len(level.order[part]))
        own, seen = (stones[part, None] >> np.arange(cells) & 1 == 1 for stones in (level.own, level.seen))
        tried = np.zeros((len(rows), cells, cells), np.float32)  # one-hot: the cell of each try
        for number in range(level.tries):
            tried[rows, number, level.order[part] >> (DIGIT * number) & 15] = 1.0
        view = self._view(own, seen, player).reshape(len(rows), -1)
        observation = np.concatenate([view, tried.reshape(len(rows), -1)], axis=1, dtype=np.float32)
        return observation.reshape(-1, *self._shape), ~(own | seen)

    def best_response(self, player: int, opponent: Plan) -> float:
        """Return the return of the best reply of `player`: one pass over its own information states, the last first."""
        weights = np.zeros(self._payoffs.sizes[1 - player])
        for level, plan in zip(self._levels[1 - player], opponent, strict=True):
            for signature in level.signatures:
                weights += np.bincount(signature.ravel(), plan.ravel(), len(weights))
        earned = self._payoffs.against(player, weights)
        value, entry = np.zeros(0), np.zeros(0, np.int32)
        for level in reversed(self._levels[player]):
            moves = earned[level.signatures].sum(axis=0)
            moves += np.bincount(entry, value, moves.size).reshape(moves.shape)
            value, entry = moves.max(axis=1), level.entry
        return float(value[0])


def phantom_ttt(name: str, abrupt: bool = False) -> PhantomGame:
    """Return OpenSpiel's phantom tic-tac-toe."""
    lines = [0b111 << 3 * i for i in range(3)] + [0b1001001 << i for i in range(3)] + [0b100010001, 0b001010100]
    sets = np.arange(1 << 9)
    won = np.any([sets & line == line for line in lines], axis=0)
    return PhantomGame(name, PhantomRules(9, np.stack([won, won])), _marks, (1, 108), abrupt)


def dark_hex(name: str, rows: int, columns: int, abrupt: bool = False) -> PhantomGame:
    """Return OpenSpiel's dark hex. Player 0 connects the first row with the last, player 1 the first column."""
    cells = rows * columns
    shape = (cells * (STATES + cells),)
    return PhantomGame(name, PhantomRules(cells, hex_wins(rows, columns)), _hexagons, shape, abrupt)


def hex_wins(rows: int, columns: int) -> np.ndarray:
    """Return whether a set of stones, as bits, connects its player's sides, bool [2, 2**cells]."""
    cells = rows * columns
    sets = np.arange(1 << cells)
    row, column = np.divmod(np.arange(cells), columns)
    steps = (0, 1), (1, 0), (1, -1)
    down, across = row[None, :] - row[:, None], column[None, :] - column[:, None]
    beside = np.any([((down == s * i) & (across == s * j)) for i, j in steps for s in (1, -1)], axis=0)
    near = [int(sum(1 << c for c in np.flatnonzero(beside[cell]))) for cell in range(cells)]
    wins = []
    for line, last in ((row, rows - 1), (column, columns - 1)):
        reached = sets & sum(1 << int(cell) for cell in np.flatnonzero(line == 0))
        for _ in range(cells):
            grown = [np.where(reached >> cell & 1, near[cell], 0) for cell in range(cells)]
            reached |= sets & np.bitwise_or.reduce(grown)
        wins.append((reached & sum(1 << int(cell) for cell in np.flatnonzero(line == last))) > 0)
    return np.stack(wins)


def _marks(own: np.ndarray, seen: np.ndarray, player: int) -> np.ndarray:
    """Return planes of the cells not tried, of player 1's marks and of player 0's."""
    return np.stack([~(own | seen), own if player == 1 else seen, seen if player == 1 else own], axis=1)


def _hexagons(own: np.ndarray, seen: np.ndarray, player: int) -> np.ndarray:
    """Return the state of each cell as one of nine, of which only three occur before the end."""
    mine, theirs = (BLACK, WHITE) if player == 0 else (WHITE, BLACK)
    state = np.where(own, mine, np.where(seen, theirs, EMPTY))
    return np.asarray(state[:, :, None] == np.arange(STATES))
