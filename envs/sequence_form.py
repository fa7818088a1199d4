"""Sequence form of a two-player zero-sum game (von Stengel 1996): the input of exact solution, as a few arrays.

A sequence is a player's own moves on the way to a history. A behavioural policy becomes a realisation plan: the
probability with which the player plays each of its sequences if chance and the opponent allow it. Expected payoffs are
bilinear in the two plans, and plans mix linearly. A best response is one pass over the player's own information states.
Everything here is vectorised: a pass over Leduc poker takes well under a millisecond.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from envs.game_tree import TERMINAL, GameTree
from warren.errors import ConfigurationError

ROUNDING = 1e-3  # tolerance for probabilities in float32: of their sum to 1, and of those of illegal actions to 0


class SequenceForm:
    """I information states with at most A actions; a policy is float64 [I, A], with rows for both players' states.

    A player's sequence 0 is the empty one; action a in its i-th state is its sequence 1 + i * A + a.
    """

    def __init__(
        self,
        name: str,
        owner: np.ndarray,
        observation: np.ndarray,
        action_mask: np.ndarray,
        labels: list[str],
        parent_sequence: np.ndarray,
        terminal_sequence: np.ndarray,
        terminal_payoff: np.ndarray,
    ) -> None:
        """parent_sequence int64 [I]: the player's sequence that leads to each state; terminal_sequence int64 [2, Z]:
        both players' sequences at each end; terminal_payoff float64 [Z]: player 0's return times chance's probability.
        """
        self.name, self.owner, self.labels = name, owner, labels
        self.observation = observation  # float32 [I, ...], to evaluate a network on all of it once
        self.action_mask = action_mask  # bool [I, A]
        self.states = [np.flatnonzero(owner == player) for player in range(2)]  # row of the player's i-th state
        self.num_sequences = [1 + len(states) * action_mask.shape[1] for states in self.states]
        self._parent = [parent_sequence[states] for states in self.states]
        self._passes = [_by_own_depth(parent, action_mask.shape[1]) for parent in self._parent]
        self._ends, self._payoff = terminal_sequence, terminal_payoff

    @classmethod
    def from_tree(cls, tree: GameTree) -> SequenceForm:
        """Return the form of `tree`. Raises ConfigurationError for imperfect recall, which this form cannot express."""
        num_actions = tree.action_mask.shape[1]
        rank = np.zeros(len(tree.owner), np.int64)
        for player in range(2):
            states = np.flatnonzero(tree.owner == player)
            rank[states] = np.arange(len(states))
        sequence = np.zeros((2, len(tree.player)), np.int64)
        reach = np.ones(len(tree.player))
        for level in tree.levels[1:]:
            parent = tree.parent[level]
            sequence[:, level] = sequence[:, parent]
            reach[level] = reach[parent] * tree.probability[level]
            for player in range(2):
                moved = tree.player[parent] == player
                state = tree.information_state[parent[moved]]
                own = 1 + rank[state] * num_actions + tree.action[level][moved]
                sequence[player, np.arange(level.start, level.stop)[moved]] = own
        decisions = np.flatnonzero(tree.information_state >= 0)
        state = tree.information_state[decisions]
        arrived_by = sequence[tree.player[decisions], decisions]
        parent_sequence = np.zeros(len(tree.owner), np.int64)
        parent_sequence[state] = arrived_by
        forgotten = np.flatnonzero(parent_sequence[state] != arrived_by)
        if forgotten.size:
            raise ConfigurationError(
                f"environment {tree.name!r} is of imperfect recall: at {tree.labels[state[forgotten[0]]]!r} the player "
                "no longer knows its own moves, so its exploitability cannot be computed this way"
            )
        ends = np.flatnonzero(tree.player == TERMINAL)
        return cls(
            tree.name,
            tree.owner,
            tree.observation,
            tree.action_mask,
            tree.labels,
            parent_sequence,
            sequence[:, ends],
            reach[ends] * tree.returns[ends],
        )

    def plans(self, policy: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the realisation plans of `policy`, float64 [sequences] each.

        Raises ConfigurationError for an invalid policy.
        """
        policy = self._checked(policy)
        plans = []
        for states, parent, passes in zip(self.states, self._parent, self._passes, strict=True):
            plan = np.ones(1 + len(states) * policy.shape[1])
            moves = plan[1:].reshape(len(states), -1)  # a view
            for rows in passes:
                moves[rows] = plan[parent[rows], None] * policy[states[rows]]
            plans.append(plan)
        return plans[0], plans[1]

    def own_moves(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield (states [K], their players' previous own states [K], -1 for none), earlier ones first."""
        for states, passes, parent in zip(self.states, self._passes, self._parent, strict=True):
            for rows in passes:
                before = states[np.maximum(parent[rows] - 1, 0) // self.action_mask.shape[1]]
                yield states[rows], np.where(parent[rows] == 0, -1, before)

    def policy(self, plan0: np.ndarray, plan1: np.ndarray) -> np.ndarray:
        """Return the behavioural policy float64 [I, A] of two realisation plans; uniform in states no plan reaches."""
        policy = np.asarray(self.action_mask / self.action_mask.sum(axis=1, keepdims=True))
        for plan, states, parent in zip((plan0, plan1), self.states, self._parent, strict=True):
            reach = plan[parent]
            reached = reach > 0
            moves = plan[1:].reshape(len(states), -1)
            policy[states[reached]] = moves[reached] / reach[reached, None]
        return policy

    def payoff(self, plan0: np.ndarray, plan1: np.ndarray) -> float:
        """Return player 0's expected return."""
        return float(np.dot(self._payoff, plan0[self._ends[0]] * plan1[self._ends[1]]))

    def worth(self, player: int, opponent: np.ndarray) -> np.ndarray:
        """Return the worth of each of the player's sequences against the plan `opponent`, float64 [sequences].

        The player's expected return with a plan is the dot product of the plan and this.
        """
        other, sign = 1 - player, 1 - 2 * player
        return np.bincount(
            self._ends[player],
            weights=sign * self._payoff * opponent[self._ends[other]],
            minlength=self.num_sequences[player],
        )

    def best_response(self, player: int, opponent: np.ndarray) -> tuple[float, np.ndarray]:
        """Return (expected return, pure plan float64 [sequences]) of the player's best reply to the plan `opponent`."""
        worth = self.worth(player, opponent)
        states, parent = self.states[player], self._parent[player]
        values = np.where(self.action_mask[states], 0.0, -np.inf)
        moves = worth[1:].reshape(values.shape)  # a view: its values grow as later states are solved
        choice = np.zeros(len(states), np.int64)
        for rows in reversed(self._passes[player]):
            value = values[rows] + moves[rows]
            choice[rows] = value.argmax(axis=1)
            best = np.take_along_axis(value, choice[rows, None], axis=1)[:, 0]
            worth += np.bincount(parent[rows], weights=best, minlength=len(worth))
        plan = np.zeros(len(worth))
        plan[0] = 1
        chosen = 1 + np.arange(len(states)) * values.shape[1] + choice
        for rows in self._passes[player]:
            plan[chosen[rows]] = plan[parent[rows]]
        return float(worth[0]), plan

    def _checked(self, policy: np.ndarray) -> np.ndarray:
        """Return `policy` as float64, each row a distribution over the legal actions to the last bit."""
        policy = np.asarray(policy, np.float64)
        if policy.shape != self.action_mask.shape:
            raise ConfigurationError(
                f"policy of {self.name!r} must be {list(self.action_mask.shape)}, is {list(policy.shape)}"
            )
        legal = np.where(self.action_mask, policy, 0.0)
        total = legal.sum(axis=1)
        wrong = ~((np.abs(total - 1) <= ROUNDING) & (np.abs(policy - legal).sum(axis=1) <= ROUNDING))
        wrong |= (legal < 0).any(axis=1)
        if wrong.any():
            i = int(np.flatnonzero(wrong)[0])
            raise ConfigurationError(
                f"policy of {self.name!r} at {self.labels[i]!r} is {policy[i]}; it must be probabilities that sum to 1 "
                f"over the legal actions {np.flatnonzero(self.action_mask[i])} and are 0 elsewhere"
            )
        return np.asarray(legal / total[:, None])


def _by_own_depth(parent: np.ndarray, num_actions: int) -> list[np.ndarray]:
    """Return a player's states (as ranks) in passes: those after none of its own moves, after one, ..."""
    passes: list[np.ndarray] = []
    depth = np.full(len(parent), -1)
    depth[parent == 0] = 0
    while (rows := np.flatnonzero(depth == len(passes))).size:
        passes.append(rows)
        before = np.maximum(parent - 1, 0) // num_actions  # the state whose action is the parent sequence
        depth[(depth < 0) & (parent > 0) & (depth[before] == len(passes) - 1)] = len(passes)
    return passes
