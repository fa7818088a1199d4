"""Explorers: they draw actions where an algorithm's `behaviour` asks for more chance than the policy itself has.

The keys of `ActingPolicy.behaviour` choose; with neither `epsilon` nor `noise` there is no explorer, and actions are
drawn from the policy's distribution.

    epsilon        probability of a legal action drawn uniformly in place of the likeliest one
    epsilon_alpha  spreads epsilons over actors: actor i of n has epsilon^(1 + alpha i / (n - 1)), Ape-X's formula
                   (Horgan et al. 2018); 0, the same for all, if not given; over environments in deterministic runs
    noise          deviation of gaussian noise on the likeliest action of a Box, in units of half its bounds' range
    noise_theta    fraction of the noise forgotten per step: an Ornstein-Uhlenbeck process, whose innovations have
                   the deviation `noise` (Lillicrap et al. 2016); if not given, each step has noise of its own

The state of that process is its drift, a tensor [N, A] for N slots; None for slots at rest, as when an episode begins.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from agents.policies.distribution import Distribution
from warren.trees import map_tree

KEYS = frozenset({"epsilon", "noise"})


class Explorer:
    """Draws the actions of one actor; `place` is (its index, number of actors)."""

    def __init__(self, behaviour: Mapping[str, float], place: tuple[int, int] = (0, 1)) -> None:
        index, actors = place
        spread = behaviour.get("epsilon_alpha", 0.0) * min(index, actors - 1) / max(1, actors - 1)
        self.epsilon = behaviour.get("epsilon", 0.0) ** (1 + spread)
        self.noise = behaviour.get("noise", 0.0)
        self.theta = behaviour.get("noise_theta")

    def choose(
        self, distribution: Distribution, output: Any, generator: torch.Generator, drift: Tensor | None = None
    ) -> tuple[Any, Tensor | None]:
        """Return (an action for each of N outputs [N, ...], masked where actions are illegal; the drift afterwards)."""
        action = distribution.mode(output)
        if self.noise:
            noise = torch.empty(action.shape).normal_(0.0, self.noise, generator=generator).to(action.device)
            if self.theta is not None:
                drift = noise if drift is None or drift.shape != noise.shape else (1 - self.theta) * drift + noise
                noise = drift
            action = distribution.noisy(action, noise)
        if not self.epsilon:
            return action, drift
        uniform = distribution.uniform(output, generator)
        first = output if isinstance(output, Tensor) else next(iter(output.values()))
        explores = (torch.rand(len(first), generator=generator) < self.epsilon).to(first.device)

        def either(one: Tensor, other: Tensor) -> Tensor:
            return torch.where(explores.view(-1, *[1] * (one.dim() - 1)), one, other)

        return map_tree(either, uniform, action), drift

    def drawn_by(self, distribution: Distribution, output: Tensor, noise: Tensor) -> Any:
        """Return the Discrete actions that exponential `noise` [N, A] draws, as `Distribution.drawn_by`."""
        return distribution.explored_by(output, noise, self.epsilon)


def at_rest(drift: Tensor | None, begins: np.ndarray) -> Tensor | None:
    """Return `drift`, set to 0 in slots where `begins` bool [N] says that an episode begins."""
    if drift is None or not begins.any():
        return drift
    return drift.masked_fill(torch.from_numpy(begins).to(drift.device)[:, None], 0)


def joined(drifts: Sequence[Tensor | None], slots: Sequence[int]) -> Tensor | None:
    """Return the drifts of groups with these numbers of `slots`, joined into one; None where all are at rest."""
    known = next((one for one in drifts if one is not None), None)
    if known is None:
        return None
    each = zip(drifts, slots, strict=True)
    return torch.cat([known.new_zeros(count, known.shape[1]) if one is None else one for one, count in each])


def explorer_of(behaviour: Mapping[str, float], place: tuple[int, int]) -> Explorer | None:
    """Return the explorer that `behaviour` asks for, or None."""
    return Explorer(behaviour, place) if KEYS & behaviour.keys() else None
