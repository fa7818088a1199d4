"""The Sampler of a gateway: decides for the agents of all games, and collects their trajectories."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from agents.policies import Policy
from agents.trajectories import Trajectory
from envs.rewards import Rewards
from workers.gateway.experience import Experience
from workers.gateway.passes import Decide, End, Passes
from workers.rollout.sampler import SamplerClosed
from workers.runtime.timing import Timing

logger = logging.getLogger(__name__)

HELD = 2  # segments of complete stretches that may wait to be taken
PATIENCE = 5.0  # s for which games are held up if more segments wait; then the oldest are dropped


class GatewaySampler(Passes):
    """A Sampler and a Player; its budget is in decisions per slot, and is the same in every call.

    `load`, `collect` and `close` must not be called by the event loop's thread.
    """

    def __init__(
        self,
        policy: Policy,
        length: int,
        slots: int,
        rewards: Rewards,
        seed: int,
        max_age: int = 1 << 30,
        timing: Timing | None = None,
        patience: float = PATIENCE,
        legal_actions: bool = False,
        fields: Collection[str] | None = None,
    ) -> None:
        """`length`, `slots`: decisions and slots of a trajectory; the rest as in Experience."""
        super().__init__()
        self.policy, self.version = policy, -1
        self._slots, self._timing, self._patience = slots, timing or Timing(), patience
        self._changed = threading.Condition()  # guards the stretches
        generator = torch.Generator().manual_seed(seed)
        self._experience = Experience(policy, length, rewards, generator, self._changed, max_age, legal_actions, fields)
        self._closed = self._dropping = False
        self.start()

    @property
    def decisions(self) -> int:
        """Number of decisions that were made."""
        return self._experience.decisions

    @property
    def dropped(self) -> int:
        """Number of decisions that were dropped because they were not taken in time."""
        return self._experience.dropped

    @property
    def ready(self) -> bool:
        """Return True once weights have come."""
        return self.version >= 0

    # The Sampler's contract.

    def load(self, weights: Mapping[str, Tensor], version: int, behaviour: Mapping[str, float] | None = None) -> None:
        """See Sampler.load. Ignore weights older than those loaded: two threads may bring them."""
        self._experience.load(weights, version, behaviour)
        self.version = self._experience.version

    def collect(self, budget: int) -> Trajectory:
        """See Sampler.collect. Wait until games have made enough decisions. Raises SamplerClosed."""
        assert budget == self._experience.length
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._experience.ready >= self._slots)
            if self._closed:
                raise SamplerClosed
            trajectory = self._experience.take(self._slots)
            self._dropping = False
            self._changed.notify_all()
        return trajectory

    def close(self) -> None:
        """Decide nothing more, and wake the threads that wait."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        super().close()

    # The policy's thread.

    def decide_all(self, asked: Sequence[Decide]) -> Sequence[Any]:
        """See Passes."""
        began = time.perf_counter()
        actions = self._experience.decide(asked)
        self._timing.add("policy: decide", time.perf_counter() - began)
        return actions

    def end_all(self, ends: Sequence[End]) -> None:
        """See Passes."""
        self._experience.end(ends)

    def after_pass(self) -> None:
        """Wait while more is complete than may wait to be taken; then drop the oldest, so that the rest is young."""
        most = HELD * self._slots
        with self._changed:
            if self._experience.ready <= most:
                return
            if not self._dropping:
                self._changed.wait_for(lambda: self._closed or self._experience.ready <= most, self._patience)
            if not self._closed and self._experience.drop_beyond(most):
                if not self._dropping:
                    logger.warning("the learner takes nothing: %d decisions dropped so far", self.dropped)
                self._dropping = True
