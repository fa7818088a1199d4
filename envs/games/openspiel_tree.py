"""Write a game of OpenSpiel out as a tree."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from envs.game_tree import CHANCE, TERMINAL, GameTree
from envs.rules import Rules, TooLarge, write_out

PROBES = 16  # random descents from which the size of a tree is estimated
GIVES_UP = 20  # a tree is not begun if its estimate is so many times the limit: the estimate may be that wrong


def tree_size(game: Any, limit: int) -> float:
    """Return 0 if the tree may have up to `limit` histories, inf if it is certainly not worth beginning.

    This is Knuth's estimate (1975): along a random descent, the sum of the products of the branching factors has the
    number of nodes as its mean. It saves writing out `limit` histories of a large game only to give up.
    """
    generator = np.random.default_rng(0)
    total = 0.0
    for _ in range(PROBES):
        state, width = game.new_initial_state(), 1.0
        while not state.is_terminal() and total <= PROBES * GIVES_UP * limit:
            children = state.legal_actions()
            total += width
            width *= len(children)
            state.apply_action(children[int(generator.integers(len(children)))])
        total += width
    return np.inf if total > PROBES * GIVES_UP * limit else 0.0


def expand(game: Any, name: str, limit: int) -> GameTree | None:
    """Return the tree of a game in turns with explicit chance; None if it has more than `limit` histories."""
    try:
        return write_out(name, OpenSpielRules(game), limit)
    except TooLarge:
        return None


class OpenSpielRules(Rules):
    """The rules of an OpenSpiel game; a state is OpenSpiel's."""

    def __init__(self, game: Any) -> None:
        self._game = game
        self._informed = game.get_type().provides_information_state_tensor
        self._shape = game.information_state_tensor_shape() if self._informed else game.observation_tensor_shape()
        self.num_actions = game.num_distinct_actions()

    def initial(self) -> Any:
        return self._game.new_initial_state()

    def to_move(self, state: Any) -> int:
        if state.is_terminal():
            return TERMINAL
        return CHANCE if state.is_chance_node() else int(state.current_player())

    def legal(self, state: Any) -> Iterable[int]:
        actions: list[int] = state.legal_actions()
        return actions

    def step(self, state: Any, action: int) -> Any:
        return state.child(action)

    def chance(self, state: Any) -> Iterable[tuple[int, float]]:
        outcomes: list[tuple[int, float]] = state.chance_outcomes()
        return outcomes

    def returns(self, state: Any) -> float:
        return float(state.returns()[0])

    def earned(self, state: Any) -> float:
        return self.returns(state)

    def observation(self, state: Any) -> np.ndarray:
        tensor = state.information_state_tensor() if self._informed else state.observation_tensor()
        return np.asarray(tensor, np.float32).reshape(self._shape)

    def information_set(self, state: Any) -> str:
        return str(state.information_state_string())
