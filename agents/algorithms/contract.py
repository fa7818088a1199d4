"""The contract of an algorithm: `Needs` of its trajectories, an `Update` for each batch of them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from torch import Tensor

from agents.algorithms import burn_in
from agents.algorithms.batch import Batch
from agents.policies import Policy
from agents.trajectories import CUT_OBSERVATION, ON_REQUEST, TrajectorySpec

GATHERED, STREAMING, SERVED = "gathered", "streaming", "served"
QUEUE, UNIFORM, PRIORITIZED, FILE = "queue", "uniform", "prioritized", "file"
NOT_DRAWN = {"last.value"}  # belongs to the moment after a segment: sequences drawn from a replay end anywhere
SOURCES = (QUEUE, UNIFORM, PRIORITIZED, FILE)
MEMORY = "memory"  # the field that trajectories of a network with a memory have


@dataclass(frozen=True)
class Needs:
    """Requirements of an algorithm on the trajectories that it learns from; checked before a run starts.

    `fields`: optional fields that samplers are to collect, such as "extras.log_prob" or "last.value". Observation,
    action, reward, how episodes ended and the last observation are always there. Samplers compute and send other fields
    only if they are named: those of trajectories.ON_REQUEST, and "cut.observation", the observations at which episodes
    were cut off, with the masks there and after the last step. None means all of ON_REQUEST, for an algorithm that
    declares no fields.
    `source`: where an update's data come from. "queue": all data that arrived since the last update, used once.
    "uniform" and "prioritized": a replay, from which each update draws one Trajectory of sequences of `length` steps,
    any number of times (agents/replay). With "prioritized" a Batch has weights, and each Update has to give priorities.
    "file": recorded games (workers/imitation); a run's own games cannot replace them.
    `unrolls`: it learns from whole unrolls [T, N], so those of an update are equally long. In a replay unrolls begin at
    any step, other sequences only at steps where an agent decided.
    `groups`: a replay draws the sequences of all agents of a game together, in adjacent slots.
    `max_staleness`: by how many weight versions data may be older than the weights that learn; None: any number.
    `burn_in`: steps of each unroll that only bring a memory up to date (agents/algorithms/burn_in.py).
    `because`: the reason, such as why no other sampling suits, as the end of a sentence that begins with "it".
    """

    fields: tuple[str, ...] | None = None
    unrolls: bool = False
    source: str = QUEUE
    length: int | None = None  # steps of a drawn sequence, a burn-in's included; only for a replay
    groups: bool = False
    sampling: tuple[str, ...] = (GATHERED, STREAMING)  # served data counts as streaming
    max_staleness: int | None = None
    burn_in: int = 0
    because: str = ""

    def problems(
        self,
        algorithm: str,
        provided: Collection[str],
        sampling: str,
        max_staleness: int,
        unroll_length: int | None = None,
    ) -> list[str]:
        """Return a message for each need that a run with these `provided` fields and settings does not meet.

        `unroll_length`: steps of its unrolls, None where they are not known.
        """
        because = f", since it {self.because}" if self.because else ""
        if self.source != QUEUE:
            unroll_length = self.length
        found = [
            f"algorithm: {algorithm!r} needs {name!r} of each trajectory, which samplers do not collect; they collect "
            f"{', '.join(sorted(provided))}"
            for name in self.fields or ()
            if name not in provided and name != CUT_OBSERVATION
        ]
        found += self._of_source(algorithm)
        asynchronous = sampling != GATHERED
        if (STREAMING if asynchronous else GATHERED) not in self.sampling:
            found.append(
                f"algorithm: {algorithm!r} does not suit sampling={sampling}{because}; use "
                f"sampling={' or '.join(self.sampling)}, or another algorithm"
            )
        elif asynchronous and self.max_staleness is not None and max_staleness > self.max_staleness:
            found.append(
                f"max_staleness: {max_staleness} is more than the {self.max_staleness} weight versions by which "
                f"data of algorithm {algorithm!r} may be old{because}; lower it"
            )
        found += burn_in.problems(self.burn_in, MEMORY in provided, unroll_length)
        return found

    def _of_source(self, algorithm: str) -> Iterator[str]:
        if self.source not in SOURCES:
            yield f"algorithm: {algorithm!r} asks for source {self.source!r}; use one of {', '.join(SOURCES)}"
        elif self.source == FILE:
            yield f"algorithm: {algorithm!r} {self.because or 'learns from recorded games: python -m workers.imitate'}"
        elif self.source == QUEUE and self.length is not None:
            yield f"algorithm: {algorithm!r} asks for sequences of length {self.length}, which a queue does not draw"
        elif self.source != QUEUE and (self.length is None or self.length < 1):
            yield f"algorithm: {algorithm!r} draws from a replay sequences of length {self.length}; use 1 or more"
        for name in sorted(NOT_DRAWN & set(self.fields or ())) if self.source != QUEUE else ():
            yield f"algorithm: {algorithm!r} asks for {name!r}, which sequences drawn from a replay do not have"


def provided(spec: TrajectorySpec) -> set[str]:
    """Return the optional fields of trajectories of `spec`, as `Needs` names them."""
    groups = ("extras", "last", "cut")
    fields = {f"{group}.{name}" for group in groups for name in getattr(spec, group)}
    if spec.cut_observation is not None:
        fields.add(CUT_OBSERVATION)
    return fields | {MEMORY} if spec.memory else fields


def not_asked_for(error: KeyError, algorithm: str, spec: TrajectorySpec) -> str | None:
    """Return a message for an update that failed because its `Needs` do not name a field; None for other failures."""
    lacking = [name for name in ON_REQUEST if name not in provided(spec)]
    names = [repr(name) for name in lacking if error.args == (name.partition(".")[2],)]
    if not names:
        return None
    return (
        f"algorithm {algorithm!r}: update() reads {error} of its trajectories, which its needs do not ask for; add "
        f"{' or '.join(names)} to the fields of its Needs, or leave the fields out to get all"
    )


@dataclass(frozen=True)
class Update:
    """The result of an update: `metrics` by name, for people and plots.

    `priorities`, for data drawn by priority: float32 [slots], at least 0, one for each slot of the batch in their
    order; later draws go by them. None leaves the priorities as they are.
    """

    metrics: dict[str, float] = field(default_factory=dict)
    priorities: np.ndarray | None = None


class Algorithm(Protocol):
    """Changes its policy's weights in place. The loop that uses it:

    while True:
        update = algorithm.update(batch)
        publish(policy.state_dict(), algorithm.behaviour())
    """

    policy: Policy

    @property
    def needs(self) -> Needs:
        """Return the needs of its trajectories, which never change."""
        ...

    def update(self, batch: Batch) -> Update:
        """Update the policy's weights from these trajectories: a Batch is a sequence of them."""
        ...

    def behaviour(self) -> dict[str, float]:
        """Return how actors are to act with these weights (epsilon, temperature, ...), for the weights' stamp.

        It reaches `Policy.behaviour` of every actor; agents/policies/explorers.py says which keys draw actions.
        """
        ...

    def adjust(self, changes: Mapping[str, Any]) -> None:
        """Change these settings. Raises ConfigurationError for unknown names and wrong values."""
        ...

    def begin_at(self, steps: int) -> None:
        """Set the schedules (learning rate, entropy) to where they stand after `steps` environment steps.

        Called before each update with the steps of all learners since the player began or was reset: schedules have
        one clock, however many learners share the updates and wherever a run resumes from.
        """
        ...

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return (tensors, scalars for JSON) that, with the policy's weights, resume training exactly."""
        ...

    def load_state(self, tensors: Mapping[str, Tensor], scalars: Mapping[str, Any]) -> None:
        """Continue from what `state` returned."""
        ...
