"""Players of Connect Four that were not trained: random, looking one move ahead, and OpenSpiel's tree search."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyspiel
import torch

from envs import Turn, TwoPlayerVectorEnv
from workers.evaluation.duplicate_deals import Seated, Side, play_once

ROLLOUTS = 1000  # random games per move of `tree_search`, from as many nodes of the tree
EXPLORATION = 2.0  # c of UCT, as in OpenSpiel's own examples

Player = Callable[[Any, np.random.Generator], int]  # takes an OpenSpiel state; returns the action of the player to move


def chance(state: Any, generator: np.random.Generator) -> int:
    """Return any legal column."""
    return int(generator.choice(state.legal_actions()))


def one_ply(state: Any, generator: np.random.Generator) -> int:
    """Return a move that wins at once, if there is one; else a random one."""
    for action in state.legal_actions():
        child = state.child(action)
        if child.is_terminal() and child.returns()[state.current_player()] > 0:
            return int(action)
    return chance(state, generator)


def tree_search(rollouts: int = ROLLOUTS, seed: int = 0) -> Player:
    """Return OpenSpiel's MCTS: `rollouts` a move, proven wins and losses backed up, a new tree for each move."""
    game = pyspiel.load_game("connect_four")
    evaluator = pyspiel.RandomRolloutEvaluator(1, seed)
    bot = pyspiel.MCTSBot(game, evaluator, EXPLORATION, rollouts, 64, True, seed, False)
    return lambda state, generator: int(bot.step(state))


class Knowing:
    """One team of a batch of games: a player that sees the whole state."""

    def __init__(self, games: TwoPlayerVectorEnv, player: Player, seed: int) -> None:
        self._games, self._player, self._generator = games, player, np.random.default_rng(seed)
        self._rules = pyspiel.load_game("connect_four")

    def act(self, turn: Turn, rows: np.ndarray, action: np.ndarray) -> None:
        """Write the moves of the games `rows` int64 [K] into `action` int64 [N]."""
        for row in rows.tolist():
            state = self._rules.new_initial_state()
            for move in self._games.history(row):  # type: ignore[attr-defined]
                state.apply_action(move)
            action[row] = self._player(state, self._generator)


def score(games: TwoPlayerVectorEnv, side: Side, opponent: Player, number: int, seed: int) -> float:
    """Return the share of the points that `side` wins in `number` games; it begins half, and a draw counts half.

    Raises IllegalAction for an illegal move.
    """
    generator = torch.Generator().manual_seed(seed)
    won: list[np.ndarray] = []
    for seat, count in enumerate((number - number // 2, number // 2)):
        for first in range(0, count, games.num_envs):
            turn, trained = games.reset(), Seated(side, seat, games.num_envs, generator)
            other = Knowing(games, opponent, seed + first)
            gained = play_once(games, turn, (trained, other) if seat == 0 else (other, trained))
            won.append((gained if seat == 0 else -gained)[: count - first])
    return float(np.concatenate(won).mean()) / 2.0 + 0.5
