"""A recorded match played again: from its seeds and actions to its result, and its decisions from the weights.

In every correct record, a game that begins from the recorded seed takes all recorded actions as legal. It ends with the
last of them and with the recorded returns, which make the outcomes that were counted. If the weights still exist, each
decision is also made again, by those weights and from the same seed. The number of observations in a forward pass
changes its last bits, so an action counts as the same if it is drawn within NEAR.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from agents.policies import Policy
from envs import Turn, TwoPlayerVectorEnv
from envs.two_player.chance import decision_noise
from warren.errors import IllegalAction, ReplayError
from workers.replays.match_record import RecordedMatch
from workers.rollout.games.game_log import PlayedGame, Weights

NEAR = 1e-3  # nats by which the recorded action may be behind another one
Policies = Callable[[Weights], Policy | None]  # None: those weights were not kept


class Move(NamedTuple):
    """A move of a game: the turn that its player saw, and its action."""

    number: int  # moves before it
    turn: Turn  # of the one game
    action: int


@dataclass
class Verification:
    """Outcome of playing a match again; it went as recorded if `problems` is empty."""

    match: str
    problems: list[str] = field(default_factory=list)
    games: int = 0
    decisions: int = 0
    decided_again: int = 0  # decisions among them by weights that still exist


def moves(games: TwoPlayerVectorEnv, played: PlayedGame) -> Iterator[Move]:
    """Play the game again, in an environment of one slot; yield each move before it is made.

    Raises ReplayError if the game does not go, or end, as recorded.
    """
    turn = games.reset(seeds=[played.seed])
    games.pop_finished()
    for number, action in enumerate(played.actions.tolist()):
        if turn.done[0]:
            raise ReplayError(f"the game was over after {number} of {len(played.actions)} moves")
        yield Move(number, turn, action)
        try:
            turn = games.step(np.array([action]))
        except IllegalAction as error:
            raise ReplayError(f"move {number + 1} is illegal: {error}") from None
    found = games.pop_finished()
    if not turn.done[0]:
        raise ReplayError(f"the game was not over after its {len(played.actions)} moves")
    if not np.array_equal(found.returns[0], played.returns):
        raise ReplayError(f"the game ended with returns {found.returns[0]}, recorded are {played.returns}")


def check(record: RecordedMatch, games: TwoPlayerVectorEnv, policies: Policies) -> Verification:
    """Play `record` again in `games`, an environment of one slot, with the weights that `policies` still has."""
    checked = Verification(record.match, games=len(record.games))
    refused: set[Weights] = set()

    def kept(weights: Weights) -> Policy | None:
        """Return the policy that played; if the kept weights are different, return None and note the problem once."""
        if weights in refused:
            return None
        try:
            return policies(weights)
        except ReplayError as error:
            refused.add(weights)
            checked.problems.append(str(error))
            return None

    if len(record.outcomes) and record.outcomes_of(record.returns) != record.outcomes:
        checked.problems.append(f"its returns make {record.outcomes_of(record.returns)}, not {record.outcomes}")
    again = _Decisions(record, kept, games.num_actions)
    for number, game in enumerate(record.games):
        try:
            made = list(moves(games, game))
        except ReplayError as error:
            checked.problems.append(f"game {number + 1}: {error}")
        else:
            again.add(game, made)
    checked.decisions = sum(len(game.actions) for game in record.games)
    checked.decided_again, otherwise = again.count()
    if otherwise:
        checked.problems.append(f"{otherwise} decisions are not those that the recorded weights make")
    return checked


class _Decisions:
    """Decisions of a match by the weights that made them; without a memory, all of a policy's are made in one pass."""

    def __init__(self, record: RecordedMatch, policies: Policies, num_actions: int) -> None:
        self._record, self._policies, self._actions = record, policies, num_actions
        self._alone: dict[Weights, list[tuple[Move, np.ndarray]]] = defaultdict(list)
        self._again = self._otherwise = 0

    def add(self, game: PlayedGame, made: list[Move]) -> None:
        numbers = np.arange(len(made))
        noise = decision_noise(np.full(len(made), game.drawn_by), numbers, self._actions)
        for seat in (0, 1):
            memory, gone = None, False  # gone: weights were not kept, so a policy's memory is unknown
            for move in made:
                if move.turn.to_move[0] != seat:
                    continue
                weights = self._record.weights(game, seat, move.number)
                policy = self._policies(weights)
                if policy is None:
                    gone = True
                    continue
                if not policy.has_memory:
                    self._alone[weights].append((move, noise[move.number]))
                    continue
                if gone:
                    break
                memory = policy.initial_memory(1) if memory is None else memory
                probabilities, memory = policy.probabilities_after(memory, move.turn.observation, move.turn.action_mask)
                self._compare(probabilities, noise[move.number][None], np.array([move.action]))

    def count(self) -> tuple[int, int]:
        """Return (decisions that were made again, those of them that came out differently)."""
        for weights, decisions in self._alone.items():
            policy = self._policies(weights)
            assert policy is not None, "it was there while the games were played"
            observation = np.concatenate([move.turn.observation for move, _ in decisions])
            mask = np.concatenate([move.turn.action_mask for move, _ in decisions])
            actions = np.array([move.action for move, _ in decisions])
            noise = np.stack([noise for _, noise in decisions])
            self._compare(policy.probabilities(observation, mask), noise, actions)
        self._alone.clear()
        return self._again, self._otherwise

    def _compare(self, probabilities: np.ndarray, noise: np.ndarray, actions: np.ndarray) -> None:
        with np.errstate(divide="ignore"):  # illegal actions
            drawn = np.log(probabilities) - np.log(noise)
        behind = drawn.max(axis=1) - drawn[np.arange(len(actions)), actions]
        self._again += len(actions)
        self._otherwise += int((behind > NEAR).sum())
