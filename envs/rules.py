"""A game of two players given by its rules: written out as a tree, played by table look-ups, solved exactly.

class Kuhn(Rules): ...                               # examples/kuhn/kuhn.py
games = RulesVectorEnv("kuhn", Kuhn(), 512, seed=0)  # or envs.make_two_player("examples/kuhn/kuhn.py:Kuhn", 512, 0)
form = SequenceForm.from_tree(write_out("kuhn", Kuhn()))
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

import numpy as np

from envs.game_tree import CHANCE, TERMINAL, GameTree
from warren.errors import ConfigurationError

LIMIT = 2_000_000  # most histories
ROUNDING = 1e-6  # tolerance for the sum of the probabilities of chance's outcomes


class Rules(ABC):
    """The rules of a zero-sum game of two players, 0 and 1. A state is any object that no method changes."""

    num_actions: int  # actions of both players are numbers from 0 to num_actions - 1
    hidden_moves = False  # True: people who play are not told the other's moves

    @abstractmethod
    def initial(self) -> Any:
        """Return the state in which the game begins."""

    @abstractmethod
    def to_move(self, state: Any) -> int:
        """Return the player to move, 0 or 1, or `CHANCE`, or `TERMINAL` if the game is over."""

    @abstractmethod
    def legal(self, state: Any) -> Iterable[int]:
        """Return the actions that the player to move may take; at least one."""

    @abstractmethod
    def step(self, state: Any, action: int) -> Any:
        """Return a new state, after an action of the player to move or an outcome of chance."""

    @abstractmethod
    def returns(self, state: Any) -> float:
        """Return the final winnings of player 0, once the game is over; player 1 has won their negative."""

    @abstractmethod
    def observation(self, state: Any) -> Any:
        """Return the knowledge of the player to move, numbers of one shape in all states: a network's only input."""

    def chance(self, state: Any) -> Iterable[tuple[int, float]]:
        """Return chance's outcomes here, (number, probability) each; it is not called for a game without chance."""
        raise NotImplementedError("to_move says that chance moves, so `chance` has to say how: (outcome, probability)")

    def information_set(self, state: Any) -> str | None:
        """Return a name for all that the player to move knows: the same in all states that it cannot tell apart.

        None, the default, means the observation. Override this if players remember more than an observation holds.
        """
        return None

    def earned(self, state: Any) -> float:
        """Return the winnings of player 0 so far: 0 until the game is over, unless the game gives rewards before."""
        return float(self.returns(state)) if self.to_move(state) == TERMINAL else 0.0


class TooLarge(ConfigurationError):
    """Raised for a game with more histories than the limit."""


def write_out(name: str, rules: Rules, limit: int = LIMIT) -> GameTree:
    """Return the whole game as a tree with a node for every history.

    Raises TooLarge beyond `limit` histories, and ConfigurationError, which names the place, for inconsistent rules.
    """
    return _Writer(name, rules, limit).write()


class _Writer:
    """Writes one tree, in breadth-first order."""

    def __init__(self, name: str, rules: Rules, limit: int) -> None:
        self._name, self._rules, self._limit = name, rules, limit
        self._parent, self._action, self._probability = [-1], [-1], [1.0]
        self._player: list[int] = []
        self._first_child: list[int] = []
        self._returns: list[float] = []
        self._state: list[int] = []  # index of each node's information state
        self._rows: dict[tuple[int, str | bytes], int] = {}
        self._owner: list[int] = []
        self._labels: list[str] = []
        self._legal: list[list[int]] = []
        self._observation: list[np.ndarray] = []

    def write(self) -> GameTree:
        rules, node = self._rules, 0
        self._actions = rules.num_actions
        if not isinstance(self._actions, int) or self._actions < 1:
            raise self._wrong(0, f"num_actions is {self._actions!r}; it must be a number of actions, at least 1")
        waiting: list[Any] = [rules.initial()]
        while node < len(waiting):
            state, waiting[node] = waiting[node], None  # only the states at the edge are kept
            edges = self._take(node, state)
            self._first_child.append(len(waiting) if edges else 0)
            if len(waiting) + len(edges) > self._limit:
                raise TooLarge(
                    f"game {self._name!r} has more than {self._limit:,} histories, or has no end: it cannot be written "
                    "out; give it as arrays (envs.TwoPlayerVectorEnv), without exact exploitability"
                )
            for action, probability in edges:
                child = rules.step(state, action)
                if child is state:
                    raise self._wrong(node, f"step({action}) returned the very state that it was given, not a new one")
                waiting.append(child)
                self._parent.append(node)
                self._action.append(action)
                self._probability.append(probability)
            node += 1
        if not self._owner:
            raise self._wrong(0, "no player ever moves")
        return self._tree()

    def _take(self, node: int, state: Any) -> list[tuple[int, float]]:
        """Add a node to the tables; return its edges, (action or outcome, probability) each."""
        player = self._rules.to_move(state)
        if player not in (0, 1, CHANCE, TERMINAL):
            raise self._wrong(node, f"to_move is {player!r}; it must be 0, 1, CHANCE or TERMINAL (of envs.rules)")
        earned = self._rules.earned(state)
        if not np.isfinite(earned):
            raise self._wrong(node, f"returns are {earned}; they must be a finite number")
        self._player.append(player)
        self._returns.append(earned)
        self._state.append(-1)
        if player == TERMINAL:
            return []
        if player == CHANCE:
            return self._outcomes(node, state)
        legal = self._actions_at(node, state)
        self._state[node] = self._information_state(node, state, player, legal)
        return [(action, 1.0) for action in legal]

    def _outcomes(self, node: int, state: Any) -> list[tuple[int, float]]:
        outcomes = [(int(outcome), float(probability)) for outcome, probability in self._rules.chance(state)]
        probabilities = [probability for _, probability in outcomes]
        if len({outcome for outcome, _ in outcomes}) < len(outcomes):
            raise self._wrong(node, f"chance names an outcome twice: {[outcome for outcome, _ in outcomes]}")
        if not all(probability >= 0.0 for probability in probabilities) or abs(sum(probabilities) - 1.0) > ROUNDING:
            raise self._wrong(node, f"chance's probabilities are {probabilities}; none negative, they must sum to 1")
        return outcomes

    def _actions_at(self, node: int, state: Any) -> list[int]:
        legal = sorted(int(action) for action in self._rules.legal(state))
        inside = all(0 <= action < self._actions for action in legal)
        if not legal or not inside or len(set(legal)) < len(legal):
            raise self._wrong(
                node, f"legal actions are {legal}; at least one is needed, each once, within 0 to {self._actions - 1}"
            )
        return legal

    def _information_state(self, node: int, state: Any, player: int, legal: list[int]) -> int:
        observation = np.asarray(self._rules.observation(state), np.float32)
        if not np.isfinite(observation).all():
            raise self._wrong(node, f"the observation {observation} is not finite")
        if self._observation and observation.shape != self._observation[0].shape:
            shapes = f"{list(observation.shape)}, elsewhere {list(self._observation[0].shape)}"
            raise self._wrong(node, f"the observation has the shape {shapes}; it must be the same everywhere")
        known = self._rules.information_set(state)
        row = self._rows.setdefault((player, observation.tobytes() if known is None else known), len(self._owner))
        if row == len(self._owner):
            self._owner.append(player)
            self._labels.append(np.array2string(observation, threshold=200) if known is None else known)
            self._legal.append(legal)
            self._observation.append(observation)
            return row
        where = f"the information set {self._labels[row]!r} of player {player}"
        if legal != self._legal[row]:
            raise self._wrong(
                node, f"{where} has legal actions {legal} here, {self._legal[row]} elsewhere: its player could tell"
            )
        if not np.array_equal(observation, self._observation[row]):
            raise self._wrong(node, f"{where} is observed otherwise here than elsewhere: its player could tell")
        return row

    def _wrong(self, node: int, what: str) -> ConfigurationError:
        path: list[int] = []
        while node > 0:
            path.append(self._action[node])
            node = self._parent[node]
        where = f"after the actions and outcomes {path[::-1]}" if path else "at its beginning"
        return ConfigurationError(f"game {self._name!r}, {where}: {what}")

    def _tree(self) -> GameTree:
        action_mask = np.zeros((len(self._owner), self._actions), np.bool_)
        for row, legal in enumerate(self._legal):
            action_mask[row, legal] = True
        return GameTree(
            name=self._name,
            player=np.array(self._player, np.int8),
            parent=np.array(self._parent, np.int32),
            first_child=np.array(self._first_child, np.int32),
            probability=np.array(self._probability),
            action=np.array(self._action, np.int64),
            information_state=np.array(self._state, np.int32),
            returns=np.array(self._returns, np.float64),
            owner=np.array(self._owner, np.int8),
            observation=np.stack(self._observation),
            action_mask=action_mask,
            labels=self._labels,
        )
