"""Plans of policies, their mixtures and best responses, in games that are too large to be written out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence

import numpy as np
import psutil

from warren.errors import ConfigurationError
from warren.progress import shown

# (observation float32 [I, ...], action_mask bool [I, A]) -> action probabilities [I, A], 0 where the mask is False
PolicyFunction = Callable[[np.ndarray, np.ndarray], np.ndarray]
Plan = list[np.ndarray]  # float64 arrays, by game: the probability that a player plays up to each of its moves
POLICY_SECONDS = 1.0  # of one core, for which a policy of two layers of 64 answers a million information states
BATCH = 16_384  # states for which a policy is asked at a time
ROUNDING = 1e-3  # tolerance for probabilities in float32: of their sum to 1, and of those of illegal actions to 0


class LargeGame(ABC):
    """A game of two players whose information states are asked in batches, and never held all as observations."""

    def __init__(self, name: str, gib: float, seconds: float, millions: float) -> None:
        """Take the cost of exploitability: `gib` GiB of memory beside the policies and `seconds` of one core.

        `millions`: of information states that each policy is asked for.
        """
        self.name, self.gib, self._seconds, self._millions = name, gib, seconds, millions

    def seconds(self, policies: int) -> float:
        """Return about how long one core computes exploitability, for policies of two layers of 64."""
        return self._seconds + policies * self._millions * POLICY_SECONDS

    @property
    @abstractmethod
    def states(self) -> int:
        """Number of information states of both players. The first call builds the game."""

    @abstractmethod
    def plan(self, player: int, policy: PolicyFunction) -> Generator[None, None, Plan]:
        """Return the plan of `policy` in a seat; yield after each batch."""

    @abstractmethod
    def best_response(self, player: int, opponent: Plan) -> float:
        """Return the return of the best reply of `player` to the plan `opponent`."""

    def exploitability(
        self, policies: Sequence[PolicyFunction], shares: Sequence[float] | np.ndarray = (1.0,)
    ) -> float:
        """Return the exploitability of drawing one of K `policies` per game, by `shares` [K] or, by seat, [2, K].

        It takes as much memory for many policies as for one. Progress is written to stderr. Raises ConfigurationError
        if there is too little memory.
        """
        refuse_beyond_memory(self.name, self.gib)
        weights = np.broadcast_to(np.asarray(shares, np.float64), (2, len(policies)))
        weights = weights / weights.sum(axis=1, keepdims=True)
        plans: list[Plan] = []
        asked = int((weights > 0.0).sum()) * self.states // 2
        steps = self._plans(policies, weights, plans)
        for _ in shown(steps, f"batches of {BATCH:,} information states", -(-asked // BATCH)):
            pass
        return (self.best_response(0, plans[1]) + self.best_response(1, plans[0])) / 2.0

    def _plans(
        self, policies: Sequence[PolicyFunction], weights: np.ndarray, plans: list[Plan]
    ) -> Generator[None, None, None]:
        for player in range(2):
            mixed: Plan = []
            for policy, weight in zip(policies, weights[player], strict=True):
                if weight > 0.0:
                    plan = yield from self.plan(player, policy)
                    mixed = mixed or [np.zeros_like(part) for part in plan]
                    for total, part in zip(mixed, plan, strict=True):
                        total += weight * part
            plans.append(mixed)


def ask(name: str, policy: PolicyFunction, observation: np.ndarray, action_mask: np.ndarray) -> np.ndarray:
    """Return the probabilities of `policy`, float64 [I, A], each row a distribution over legal actions to the last bit.

    Raises ConfigurationError if a row is not a distribution.
    """
    given = np.asarray(policy(observation, action_mask), np.float64)
    if given.shape != action_mask.shape:
        raise ConfigurationError(f"policy of {name!r} must be {list(action_mask.shape)}, is {list(given.shape)}")
    legal = np.where(action_mask, given, 0.0)
    total = legal.sum(axis=1)
    fine = (np.abs(total - 1.0) <= ROUNDING) & (np.abs(given - legal).sum(axis=1) <= ROUNDING)
    fine &= (legal >= 0.0).all(axis=1)
    if not fine.all():
        row = int(np.flatnonzero(~fine)[0])
        raise ConfigurationError(
            f"policy of {name!r} is {given[row]} at observation {observation[row].ravel().tolist()}; it must be "
            f"probabilities that sum to 1 over the legal actions {np.flatnonzero(action_mask[row])} and 0 elsewhere"
        )
    return np.asarray(legal / total[:, None])


def refuse_beyond_memory(name: str, gib: float) -> None:
    """Raise ConfigurationError if less than `gib` GiB of memory are free."""
    free = psutil.virtual_memory().available / 2**30
    if free < gib:
        raise ConfigurationError(
            f"environment {name!r}: its exact exploitability takes {gib:.1f} GiB of memory, {free:.1f} are free; "
            "end other programs, or use a larger machine"
        )
