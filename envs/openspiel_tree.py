"""Writes a game of OpenSpiel out as a tree."""

from __future__ import annotations

from typing import Any

import numpy as np

from envs.game_tree import CHANCE, TERMINAL, GameTree

PROBES = 16  # random descents that the size of a tree is estimated by
GIVES_UP = 20  # estimate, in limits, beyond which a tree is not begun: the estimate may be that wrong


def tree_size(game: Any, limit: int) -> float:
    """0 when the tree may have up to `limit` histories; inf when it certainly is not worth beginning.

    Knuth's estimate (1975): along a random descent, the sum of the products of the branching factors has the number
    of nodes as its mean. It spares a large game the work of writing out `limit` histories only to give up.
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
    """The tree of a game in turns, whose chance is explicit; None if it has more than `limit` histories."""
    informed = game.get_type().provides_information_state_tensor
    states: list[Any] = [game.new_initial_state()]
    player, parent, first_child, probability, action, decision, returns = [], [-1], [], [1.0], [-1], [], []
    rows: dict[tuple[int, str], int] = {}
    owner: list[int] = []
    labels: list[str] = []
    legal: list[list[int]] = []
    observation: list[np.ndarray] = []
    node = 0
    while node < len(states):
        state = states[node]
        states[node] = None
        first_child.append(len(states))
        returns.append(state.returns()[0])
        row = -1
        if state.is_terminal():
            player.append(TERMINAL)
            first_child[-1] = 0
            edges = []
        elif state.is_chance_node():
            player.append(CHANCE)
            edges = state.chance_outcomes()
        else:
            mover = state.current_player()
            player.append(mover)
            edges = [(move, 1.0) for move in state.legal_actions()]
            label = state.information_state_string()
            row = rows.setdefault((mover, label), len(rows))
            if row == len(owner):
                owner.append(mover)
                labels.append(label)
                tensor = state.information_state_tensor() if informed else state.observation_tensor()
                observation.append(np.asarray(tensor, np.float32))
                legal.append([move for move, _ in edges])
        decision.append(row)
        if len(states) + len(edges) > limit:
            return None
        for move, chance in edges:
            states.append(state.child(move))
            parent.append(node)
            probability.append(chance)
            action.append(move)
        node += 1
    action_mask = np.zeros((len(owner), game.num_distinct_actions()), np.bool_)
    for row, moves in enumerate(legal):
        action_mask[row, moves] = True
    shape = game.information_state_tensor_shape() if informed else game.observation_tensor_shape()
    return GameTree(
        name=name,
        player=np.array(player, np.int8),
        parent=np.array(parent, np.int32),
        first_child=np.array(first_child, np.int32),
        probability=np.array(probability),
        action=np.array(action, np.int64),
        information_state=np.array(decision, np.int32),
        returns=np.array(returns, np.float64),
        owner=np.array(owner, np.int8),
        observation=np.array(observation).reshape(-1, *shape),
        action_mask=action_mask,
        labels=labels,
    )
