"""The Sampler of a gateway: decides for the agents of all games, and collects what they lived through."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from agents.policies import Policy
from agents.trajectories import Trajectory
from envs.rewards import Rewards
from warren.trees import map_tree, take
from workers.gateway.agent_state import AgentState, remembered
from workers.gateway.passes import Decide, End, Passes, masks
from workers.gateway.stretches import Line, PendingDecision, Stretches
from workers.rollout.sampler import SamplerClosed, load_into
from workers.runtime.timing import Timing

logger = logging.getLogger(__name__)

HELD = 2  # segments of complete stretches that may wait to be taken
PATIENCE = 5.0  # s that games are held up when more wait; then the oldest are dropped
EPISODES = 1000  # finished ones that are remembered, where nobody takes anything


class LearningAgent(AgentState):
    """An agent whose decisions are learned from."""

    __slots__ = ("line", "pending")

    def __init__(self) -> None:
        super().__init__()
        self.line = Line()
        self.pending: PendingDecision | None = None  # the last one


class GatewaySampler(Passes):
    """A Sampler and a Player; its budget is in decisions a slot, and is the same in every call.

    `load`, `collect` and `close` are for other threads than the event loop's.
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
        """`length` decisions of `slots` slots are a trajectory. `max_age`: see Stretches. `legal_actions`: whether
        trajectories have masks of them. `fields`: what the algorithm asks for, as its Needs say."""
        super().__init__()
        self.policy, self.version = policy, -1
        self.decisions = self.dropped = 0
        self._slots, self._rewards, self._timing = slots, rewards, timing or Timing()
        self._patience = patience
        self._generator = torch.Generator().manual_seed(seed)
        self._stretches = Stretches(policy.spec(legal_actions, len(rewards.channels), fields), length, max_age)
        self._episodes: list[list[float]] = []
        self._lock = threading.Lock()  # of the weights
        self._changed = threading.Condition()  # of the stretches
        self._closed = self._dropping = False
        self.start()

    @property
    def ready(self) -> bool:
        """Return True once weights have come."""
        return self.version >= 0

    # The Sampler's contract.

    def load(self, weights: Mapping[str, Tensor], version: int, behaviour: Mapping[str, float] | None = None) -> None:
        """See Sampler.load. Ignore weights older than those loaded: two threads may bring them."""
        with self._lock:
            if version <= self.version:
                return
            load_into(self.policy, weights, version, behaviour)
            self.version = version
        with self._changed:
            self._stretches.renew(version)

    def collect(self, budget: int) -> Trajectory:
        """See Sampler.collect. Wait until games have made enough decisions. Raises SamplerClosed."""
        assert budget == self._stretches.length
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._stretches.ready >= self._slots)
            if self._closed:
                raise SamplerClosed
            episodes, self._episodes = self._episodes, []
            columns = 2 + len(self._rewards.channels)
            rows = np.array(episodes, np.float32).reshape(-1, columns)
            trajectory = self._stretches.take(self._slots, rows)
            self._dropping = False
            self._changed.notify_all()
        return trajectory

    def close(self) -> None:
        """Decide nothing more; whoever waits is told."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        super().close()

    # The policy's thread.

    def decide_all(self, asked: Sequence[Decide]) -> Sequence[Any]:
        """See Passes."""
        began = time.perf_counter()
        policy = self.policy
        observation = map_tree(lambda *parts: np.stack(parts), *(one.observation for one in asked))
        players = [LearningAgent.of(one.agent) for one in asked]
        spec = self._stretches.spec
        legal = None if spec.action_mask is None else masks(asked, spec.action_mask.shape[0])
        with self._lock:
            version = self.version
            memory = self._memory(players)
            acted = policy.step(
                observation, memory, action_mask=legal, generator=self._generator, value=spec.values_steps
            )
        actions = policy.env_action(acted.action)
        before = {name: part.cpu().numpy() for name, part in memory.items()}
        with self._changed:
            for row, (one, player) in enumerate(zip(asked, players, strict=True)):
                decision = PendingDecision(
                    one.observation,
                    take(acted.action, row),
                    take(acted.extras, row),
                    take(before, row),
                    version,
                    None if legal is None else legal[row],
                )
                if player.pending is not None:
                    reward = self._reward(player, one.earned)
                    self._stretches.follow(player.line, player.pending, reward, decision)
                player.pending = decision
                player.memory = take(acted.memory, row)
            self._changed.notify_all()
        self.decisions += len(asked)
        self._timing.add("policy: decide", time.perf_counter() - began)
        return [take(actions, row) for row in range(len(asked))]

    def end_all(self, ends: Sequence[End]) -> None:
        """See Passes."""
        cuts = self._cuts(ends)
        with self._changed:
            for one in ends:
                player, one.agent.state = one.agent.state, None
                if player is None or player.pending is None:
                    continue
                if one.abandoned:
                    self._stretches.cut_off(player.line, cuts[id(one)])
                    continue
                reward = self._reward(player, one.earned)
                self._stretches.end(player.line, player.pending, reward, cuts.get(id(one)))
                channels = player.returns.tolist() if self._rewards.channels else []
                self._episodes.append([float(self._rewards.total(player.returns)), float(player.length), *channels])
            if ends:
                self._changed.notify_all()

    def _cuts(self, ends: Sequence[End]) -> dict[int, dict[str, Any]]:
        """Return by id of each that was cut off the observation where it was, and its value where that is asked for."""
        cuts: dict[int, dict[str, Any]] = {}
        unknown: list[tuple[End, Any, AgentState]] = []  # with the observation, and what was remembered there
        for one in ends:
            player = one.agent.state
            if player is None or player.pending is None or not (one.abandoned or one.last is not None):
                continue
            decision = player.pending
            where = decision.observation if one.abandoned else one.last
            legal = decision.action_mask if one.abandoned else one.action_mask
            cut = cuts[id(one)] = {"observation": where, "action_mask": legal}
            if not self._stretches.spec.cut:
                continue
            if not one.abandoned:
                unknown.append((one, where, player))
            elif "value" in decision.extras:
                cut["value"] = decision.extras["value"]
            else:  # of a policy without a memory: one with one is asked for each step's value
                unknown.append((one, where, AgentState()))
        if unknown:
            observation = map_tree(lambda *parts: np.stack(parts), *(where for _, where, _ in unknown))
            with self._lock:
                values = self.policy.value(observation, self._memory([playing for _, _, playing in unknown]))
            for (one, _, _), value in zip(unknown, values, strict=True):
                cuts[id(one)]["value"] = value
        return cuts

    def _memory(self, players: Sequence[AgentState]) -> dict[str, Tensor]:
        with torch.inference_mode():
            return remembered(self.policy.initial_memory(len(players)), players)

    def _reward(self, player: AgentState, earned: Any) -> Any:
        """Count `earned` in the agent's episode, and return what is learned from it."""
        given = player.earn(self._rewards, earned)
        return self._rewards.learned_from(given if self.policy.channels else np.asarray(self._rewards.total(given)))

    def after_pass(self) -> None:
        """Wait while more is complete than may wait to be taken; then drop the oldest, so that what waits is young."""
        most = HELD * self._slots
        with self._changed:
            if self._stretches.ready <= most:
                return
            if not self._dropping:
                self._changed.wait_for(lambda: self._closed or self._stretches.ready <= most, self._patience)
            if (over := self._stretches.ready - most) > 0 and not self._closed:
                self._stretches.drop_oldest(over)
                del self._episodes[:-EPISODES]
                self.dropped += over * self._stretches.length
                if not self._dropping:
                    logger.warning("the learner takes nothing: %d decisions dropped so far", self.dropped)
                self._dropping = True
