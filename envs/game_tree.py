"""A whole game as tables with a node per history, so that small games run at numpy's speed and are solved exactly."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from envs.compiled_tree import TABLES, CompiledTree
from envs.two_player.chance import Chance
from envs.two_player.vector_env import Turn, TwoPlayerVectorEnv
from warren.errors import ConfigurationError

CHANCE, TERMINAL = -1, -2  # in place of a player's number


@dataclass(frozen=True)
class GameTree:
    """H histories in breadth-first order: node 0 is the start, and the children of a node are neighbours.

    The children of a decision node are in the rising order of its legal actions; those of a chance node in the order of
    its outcomes. All histories that the player to move cannot tell apart have the same information state.
    """

    name: str
    player: np.ndarray  # int8 [H]: 0, 1, CHANCE or TERMINAL
    parent: np.ndarray  # int32 [H]; the start's is -1
    first_child: np.ndarray  # int32 [H]; 0 at terminal nodes
    probability: np.ndarray  # float64 [H]: that of this node after its parent if chance moves there, else 1
    action: np.ndarray  # int64 [H]: the action, or chance's outcome, that leads here from the parent; the start's is -1
    information_state: np.ndarray  # int32 [H]: row of the tables below; -1 at nodes without a decision
    returns: np.ndarray  # float64 [H]: player 0's rewards so far; player 1's are their negatives
    owner: np.ndarray  # int8 [I]: the player that moves in this information state
    observation: np.ndarray  # float32 [I, ...]
    action_mask: np.ndarray  # bool [I, A]
    labels: list[str]  # [I]: for people

    @cached_property
    def levels(self) -> list[slice]:
        """The nodes of each depth, from the start down."""
        levels, begin, end = [], 0, 1
        while begin < end:
            levels.append(slice(begin, end))
            begin, end = end, int(np.searchsorted(self.parent, end))
        return levels

    @cached_property
    def slot(self) -> np.ndarray:
        """int32 [I, A]: the number of the child to which a legal action leads."""
        return (np.cumsum(self.action_mask, axis=1) - 1).astype(np.int32)

    @cached_property
    def chance(self) -> tuple[np.ndarray, np.ndarray]:
        """(int32 [H]: row of a chance node in the second array; float64 [C, outcomes - 1]: thresholds of its outcomes).

        The outcome of a uniform u in [0, 1) is the number of thresholds that are at most u.
        """
        nodes = np.flatnonzero(self.player == CHANCE)
        row = np.full(len(self.player), -1, np.int32)
        row[nodes] = np.arange(len(nodes))
        children = np.flatnonzero((self.parent >= 0) & (self.player[self.parent] == CHANCE))
        rank = children - self.first_child[self.parent[children]]
        outcomes = int(rank.max(initial=0)) + 1
        probability = np.zeros((len(nodes), outcomes))
        probability[row[self.parent[children]], rank] = self.probability[children]
        thresholds = np.cumsum(probability, axis=1)
        # No u may reach the last outcome's threshold or those beyond (the sum may differ from 1 by rounding).
        thresholds[np.cumsum(probability[:, ::-1], axis=1)[:, ::-1] - probability <= 0] = np.inf
        return row, thresholds[:, :-1]

    @property
    def tables(self) -> dict[str, np.ndarray]:
        """Return the tables that compiled steps read, by the names in compiled_tree.TABLES."""
        row, threshold = self.chance
        made = {"chance": row, "threshold": threshold}
        return {name: made[name] if name in made else getattr(self, name) for name, _ in TABLES}

    def history(self, node: int) -> list[int]:
        """Return the actions and outcomes from the start to `node`."""
        actions = []
        while node > 0:
            actions.append(int(self.action[node]))
            node = int(self.parent[node])
        return actions[::-1]

    def ends_unplayed(self) -> np.ndarray:
        """Return the ends, int64 [K], to which chance alone may lead from the start."""
        reached = np.zeros(len(self.player), np.bool_)
        reached[0] = True
        for level in self.levels[1:]:
            parent = self.parent[level]
            by_chance = reached[parent] & (self.player[parent] == CHANCE)
            reached[level] = by_chance & (self.probability[level] > 0)
            if not reached[level].any():
                break
        return np.flatnonzero(reached & (self.player == TERMINAL))


class TreeVectorEnv(TwoPlayerVectorEnv):
    """N games played on one tree: a step is a few table look-ups, in C if there is a compiler."""

    chance: Chance

    def __init__(self, tree: GameTree, num_envs: int, seed: int) -> None:
        """Raise ConfigurationError for a tree in which a game may end before anyone moves: no turn could show it."""
        if len(unplayed := tree.ends_unplayed()):
            raise ConfigurationError(
                f"environment {tree.name!r}: a game may end before anyone moves, by chance's outcomes "
                f"{tree.history(int(unplayed[0]))}; leave them out, or let a player make a move before that end"
            )
        super().__init__(tree.name, num_envs, tree.observation.shape[1:], tree.action_mask.shape[1])
        self.tree = tree
        self.max_return = float(np.abs(tree.returns[tree.player == TERMINAL]).max(initial=0.0)) or None
        self.chance = Chance(num_envs, seed)
        self._node = np.zeros(num_envs, np.int64)
        self._compiled = CompiledTree.of(tree.tables)

    def history(self, index: int) -> list[int]:
        """Return the actions and chance's outcomes of game `index` so far."""
        return self.tree.history(int(self._node[index]))

    def text(self, index: int) -> str:
        """Return the name of the information state."""
        label: str = self.tree.labels[self.tree.information_state[self._node[index]]]
        return label

    def _reset(self) -> Turn:
        self._node = self._begin(self._rows)
        return self._turn_of(*self._no_outcome())

    def _step(self, action: np.ndarray) -> Turn:
        if self._compiled is not None:
            return self._compiled.step(action, self._node, self.chance)
        tree, before = self.tree, self._node
        node = tree.first_child[before] + tree.slot[tree.information_state[before], action]
        node = self._past_chance(node, self._rows)
        reward, done, truncated = self._no_outcome()
        reward[:, 0] = tree.returns[node] - tree.returns[before]
        reward[:, 1] = -reward[:, 0]
        np.equal(tree.player[node], TERMINAL, out=done)
        if done.any():
            ended = np.flatnonzero(done)
            node[ended] = self._begin(ended)
        self._node = node
        return self._turn_of(reward, done, truncated)

    def _begin(self, games: np.ndarray) -> np.ndarray:
        """Return the nodes of the first decisions in these games, int64 [K]."""
        self.chance.begin(games)
        return self._past_chance(np.zeros(len(games), np.int64), games)

    def _past_chance(self, node: np.ndarray, games: np.ndarray) -> np.ndarray:
        """Draw chance's moves after `node` in these games; return the nodes that follow."""
        row, thresholds = self.tree.chance
        while (waiting := np.flatnonzero(self.tree.player[node] == CHANCE)).size:
            here = node[waiting]
            drawn = self.chance.uniform(games[waiting])[:, None] >= thresholds[row[here]]
            node[waiting] = self.tree.first_child[here] + drawn.sum(axis=1)
        return node

    def _turn_of(self, reward: np.ndarray, done: np.ndarray, truncated: np.ndarray) -> Turn:
        tree, state = self.tree, self.tree.information_state[self._node]
        return Turn(tree.owner[state], tree.observation[state], tree.action_mask[state], reward, done, truncated)
