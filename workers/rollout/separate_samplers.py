"""Environments that are each stepped alone, so that the episodes in one do not depend on the others.

For `deterministic=true`: one forward pass of eight observations rounds differently from two of four, and environments
that share a random generator draw differently in another group. Here an environment's episodes depend only on the run's
seed and on its index among all of the run's environments, however these are divided among actors. It is slow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from torch import Tensor

from agents import Policy
from agents.trajectories import Trajectory, concatenate
from workers.rollout.sampler import load_into
from workers.rollout.vector_sampler import VectorSampler


class SeparateSamplers:
    """A Sampler made of a sampler for each of `seeds`, with one environment each, all with `policy`.

    `first`: index of the first environment among the run's `total`; the policy explores as if each had its own actor.
    """

    def __init__(
        self,
        seeds: Sequence[int],
        policy: Policy,
        make: Callable[[int, Policy], VectorSampler],
        first: int = 0,
        total: int = 1,
    ) -> None:
        self.policy = policy
        self.version = -1
        self._samplers = {(first + index, total): make(seed, policy) for index, seed in enumerate(seeds)}

    def load(self, weights: Mapping[str, Tensor], version: int, behaviour: Mapping[str, float] | None = None) -> None:
        """See Sampler.load."""
        load_into(self.policy, weights, version, behaviour)
        self.version = version
        for sampler in self._samplers.values():
            sampler.version = version

    def collect(self, budget: int) -> Trajectory:
        """Return the next `budget` steps of every environment, one slot per environment, in their order."""
        made = []
        for place, sampler in self._samplers.items():
            self.policy.place = place
            made.append(sampler.collect(budget))
        return concatenate(made)

    def close(self) -> None:
        """Close the environments."""
        for sampler in self._samplers.values():
            sampler.close()
