"""Players of Connect Four that were not trained: chance, one that looks a move ahead, OpenSpiel's tree search."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyspiel

from workers.runtime.trained import Trained

ROLLOUTS = 1000  # random games, from as many nodes of the tree, a move of `tree_search`
EXPLORATION = 2.0  # c of UCT, as in OpenSpiel's own examples

Player = Callable[[Any, np.random.Generator], int]  # takes an OpenSpiel state; returns the action of the player to move


def chance(state: Any, generator: np.random.Generator) -> int:
    """Any legal column."""
    return int(generator.choice(state.legal_actions()))


def one_ply(state: Any, generator: np.random.Generator) -> int:
    """Return a move that looks one move ahead: it wins where it can, else it is random."""
    for action in state.legal_actions():
        child = state.child(action)
        if child.is_terminal() and child.returns()[state.current_player()] > 0:
            return int(action)
    return chance(state, generator)


def tree_search(rollouts: int = ROLLOUTS, seed: int = 0) -> Player:
    """OpenSpiel's MCTS: `rollouts` a move, proven wins and losses backed up, the tree begun anew at each move."""
    game = pyspiel.load_game("connect_four")
    evaluator = pyspiel.RandomRolloutEvaluator(1, seed)
    bot = pyspiel.MCTSBot(game, evaluator, EXPLORATION, rollouts, 64, True, seed, False)
    return lambda state, generator: int(bot.step(state))


def score(trained: Trained, opponent: Player, number: int, seed: int, *, greedy: bool = True) -> float:
    """Return the trained player's share of `number` games, a draw being half of one. It begins every other game.

    `greedy`: it plays its likeliest move; else it draws one, as in training. Raises IllegalAction for an illegal move.
    """
    slots = min(50, number)
    games, rules = trained.games(slots, seed), pyspiel.load_game("connect_four")
    generator, mine = np.random.default_rng(seed), np.arange(slots) % 2  # the seat that is trained, by game slot
    each = np.full(slots, number // slots)  # games a slot: a number in all would favour short ones
    each[: number % slots] += 1
    mode, turn, won = "greedy" if greedy else "sample", games.reset(), []
    while each.any():
        action = np.zeros(slots, np.int64)
        trained_moves = turn.to_move == mine
        rows = np.flatnonzero(trained_moves)
        if rows.size:
            observation, mask = turn.observation[rows], turn.action_mask[rows]
            action[rows] = trained.policy.step(observation, mode=mode, action_mask=mask, value=False).action
        for row in np.flatnonzero(~trained_moves):
            if not each[row]:
                action[row] = turn.action_mask[row].argmax()  # its games are over
                continue
            state = rules.new_initial_state()
            for move in games.history(int(row)):  # type: ignore[attr-defined]
                state.apply_action(move)
            action[row] = opponent(state, generator)
        turn = games.step(action)
        ended = games.pop_finished()
        for game, i in enumerate(ended.index):
            if each[i]:
                each[i] -= 1
                won.append((float(ended.returns[game, mine[i]]) + 1) / 2)
    return float(np.mean(won))
