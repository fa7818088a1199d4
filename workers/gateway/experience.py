"""Experience: one learning policy's decisions for agents of games, and the trajectories that they make."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from agents.policies import Policy
from agents.policies.explorers import joined
from agents.trajectories import Trajectory
from envs.rewards import Rewards
from warren.trees import leaves, map_tree, take
from workers.gateway.agent_state import AgentState, remembered
from workers.gateway.passes import Decide, End, masks
from workers.gateway.stretches import Line, PendingDecision, Stretches
from workers.rollout.sampler import load_into

TOO_LARGE = "observation: its numbers are so large that those which the network makes of them are not finite"
EPISODES = 1000  # finished episodes that are remembered while none is taken


class LearningAgent(AgentState):
    """An agent whose decisions are learned from, until the experience is cleared."""

    __slots__ = ("drift", "line", "pending", "since")

    def __init__(self) -> None:
        super().__init__()
        self.line = Line()
        self.pending: PendingDecision | None = None  # its last decision
        self.drift: Tensor | None = None
        self.since = 0  # times that the experience was cleared before its first decision


class Experience:
    """Decisions by one policy, and the trajectories of them.

    `decide` and `end` are for the policy's thread, and notify `changed`. The rest is for other threads, which hold
    `changed` except for `load`.
    """

    def __init__(
        self,
        policy: Policy,
        length: int,
        rewards: Rewards,
        generator: torch.Generator,
        changed: threading.Condition,
        max_age: int = 1 << 30,
        legal_actions: bool = False,
        fields: Collection[str] | None = None,
    ) -> None:
        """`length`: decisions in a trajectory. `max_age`: see Stretches. `legal_actions`: whether trajectories have
        masks of legal actions. `fields`: those that the algorithm's Needs ask for."""
        self.policy, self.version = policy, -1
        self.decisions = self.dropped = 0
        self._rewards, self._generator, self._changed = rewards, generator, changed
        self._spec = policy.spec(legal_actions, len(rewards.channels), fields)
        self._stretches = Stretches(self._spec, length, max_age)
        self._episodes: list[list[float]] = []
        self._lock = threading.Lock()  # guards the weights
        self._cleared = 0

    def load(self, weights: Mapping[str, Tensor], version: int, behaviour: Mapping[str, float] | None = None) -> None:
        """Load weights as Sampler.load does, unless they are older than those loaded; `changed` must not be held."""
        with self._lock:
            if version <= self.version:
                return
            load_into(self.policy, weights, version, behaviour)
            self.version = version
        with self._changed:
            self._stretches.renew(version)

    # Trajectories.

    @property
    def length(self) -> int:
        """Decisions in a trajectory."""
        return self._stretches.length

    @property
    def ready(self) -> int:
        """Number of complete trajectories."""
        return self._stretches.ready

    def take(self, count: int) -> Trajectory:
        """Return the `count` <= ready trajectories completed first, a slot each, and the episodes that have ended."""
        episodes, self._episodes = self._episodes, []
        columns = 2 + len(self._rewards.channels)
        return self._stretches.take(count, np.array(episodes, np.float32).reshape(-1, columns))

    def drop_beyond(self, most: int) -> int:
        """Drop the oldest complete trajectories beyond `most`, so that the rest is young; return how many."""
        over = max(0, self._stretches.ready - most)
        self._stretches.drop_oldest(over)
        if over:
            del self._episodes[:-EPISODES]
            self.dropped += over * self.length
        return over

    def pop_expired(self) -> int:
        """Return the number of decisions that were dropped since the last call."""
        return self._stretches.pop_dropped()

    def clear(self) -> None:
        """Drop every trajectory, complete or not, and let agents begin anew: the player goes on with other weights."""
        self._cleared += 1
        self._stretches.clear()
        self._episodes.clear()

    # The policy's thread.

    def decide(self, asked: Sequence[Decide]) -> Sequence[Any]:
        """Return actions as the action space has them, by one forward pass; a ValueError for an agent without one.

        An observation beyond what the network can compute harms neither the other agents nor any trajectory.
        """
        policy, spec = self.policy, self._spec
        observation = map_tree(lambda *parts: np.stack(parts), *(one.observation for one in asked))
        with self._changed:
            players = [self._state_of(one) for one in asked]
        legal = None if spec.action_mask is None else masks(asked, policy.action_space)
        with self._lock:
            version = self.version
            memory = self._memory(players)
            policy.drift = joined([player.drift for player in players], [1] * len(players))
            acted = policy.step(
                observation, memory, action_mask=legal, generator=self._generator, value=spec.values_steps
            )
            drift = policy.drift
        actions = policy.env_action(acted.action)
        before = {name: part.cpu().numpy() for name, part in memory.items()}
        sound = _finite([acted.action, acted.extras], len(asked))
        with self._changed:
            for row, (one, player) in enumerate(zip(asked, players, strict=True)):
                if not sound[row]:
                    continue
                decision = PendingDecision(
                    one.observation,
                    take(acted.action, row),
                    take(acted.extras, row),
                    take(before, row),
                    version,
                    None if legal is None else legal[row],
                )
                if player.pending is not None and player.since == self._cleared:
                    reward = self._reward(player, one.earned)
                    self._stretches.follow(player.line, player.pending, reward, decision)
                player.pending = decision
                player.memory = take(acted.memory, row)
                player.drift = None if drift is None else drift[row : row + 1]
            self._changed.notify_all()
        self.decisions += int(sound.sum())
        return [take(actions, row) if fine else ValueError(TOO_LARGE) for row, fine in enumerate(sound)]

    def end(self, ends: Sequence[End]) -> None:
        """End these agents' episodes."""
        cuts = self._cuts(ends)
        with self._changed:
            for one in ends:
                player, one.agent.state = one.agent.state, None
                if player is None or player.pending is None or player.since != self._cleared:
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

    def _state_of(self, one: Decide) -> LearningAgent:
        """Return the agent's state, a new one if the experience was cleared since the agent began."""
        player = LearningAgent.of(one.agent)
        if player.since != self._cleared:
            if player.pending is not None:
                player = one.agent.state = LearningAgent()
            player.since = self._cleared
        return player

    def _cuts(self, ends: Sequence[End]) -> dict[int, dict[str, Any]]:
        """Return, by id of each End that was cut off, the observation there, and its value if the spec asks for it."""
        cuts: dict[int, dict[str, Any]] = {}
        unknown: list[tuple[End, Any, AgentState]] = []  # with the observation, and the agent's state there
        for one in ends:
            player = one.agent.state
            if player is None or player.pending is None or not (one.abandoned or one.last is not None):
                continue
            decision = player.pending
            where = decision.observation if one.abandoned else one.last
            legal = decision.action_mask if one.abandoned else one.action_mask
            cut = cuts[id(one)] = {"observation": where, "action_mask": legal}
            if not self._spec.cut:
                continue
            if not one.abandoned:
                unknown.append((one, where, player))
            elif "value" in decision.extras:
                cut["value"] = decision.extras["value"]
            else:  # the policy has no memory: one with a memory is asked for each step's value
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
        """Count `earned` in the agent's episode, and return the reward that is learned from."""
        given = player.earn(self._rewards, earned)
        return self._rewards.learned_from(given if self.policy.channels else np.asarray(self._rewards.total(given)))


def _finite(parts: Sequence[Any], rows: int) -> np.ndarray:
    """Return bool [rows], True where all numbers of these trees of arrays [rows, ...] are finite."""
    finite = np.ones(rows, np.bool_)
    for part in parts:
        for _, leaf in leaves(part):
            if leaf.dtype.kind == "f":
                finite &= np.isfinite(leaf).reshape(rows, -1).all(1)
    return finite
