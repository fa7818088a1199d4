"""`python -m workers.gateway.fakes.buffer run=NAME`: random trajectories, for a learner's own tests.

It joins a run as an actor or a gateway does. Observations are drawn from the spaces and rewards at random, so they test
only that the learner works from end to end.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
from torch import Tensor

import envs
from agents import Policy, build_policy
from agents.trajectories import Trajectory, TrajectorySpec
from agents.trees import empty, spec_of, zeros
from envs.vector.base import stacked
from warren.errors import ConfigurationError
from warren.trees import Tree, map_tree
from workers.config import roles
from workers.config.command_line import role
from workers.config.schema import Config
from workers.rollout import actor as worker
from workers.rollout.sampler import load_into

EPISODE = 20.0  # steps of an episode, on average


class RandomSampler:
    """A Sampler that plays nothing."""

    def __init__(
        self,
        policy: Policy,
        slots: int,
        seed: int,
        columns: int,
        legal_actions: bool = False,
        fields: Collection[str] | None = None,
    ) -> None:
        """`columns`: of Trajectory.episodes. `legal_actions`: whether there are masks, by which all actions are legal.
        `fields`: those that the algorithm's Needs ask for."""
        self.policy, self.version = policy, -1
        self._slots, self._columns, self._random = slots, columns, np.random.default_rng(seed)
        self._spec = policy.spec(legal_actions, fields=fields)
        policy.learning_space.seed(seed)

    def load(self, weights: Mapping[str, Tensor], version: int, behaviour: Mapping[str, float] | None = None) -> None:
        """See Sampler.load."""
        load_into(self.policy, weights, version, behaviour)
        self.version = version

    def collect(self, budget: int) -> Trajectory:
        """See Sampler.collect; T = budget."""
        policy, spec, shape = self.policy, self._spec, (budget, self._slots)
        memory = policy.initial_memory(self._slots)
        before = {name: part.cpu().numpy() for name, part in memory.items()}
        done = self._random.random(shape) < 1 / EPISODE
        rows, observation = [], self._observations()
        for step in range(budget):
            acted = policy.step(observation, memory)
            extras = {name: acted.extras[name] for name in spec.extras}
            rows.append({"observation": observation, "action": acted.action, "extras": extras})
            memory = policy.begin(acted.memory, done[step])
            observation = self._observations()
        steps = map_tree(lambda *parts: np.stack(parts), *rows)
        last = {"observation": observation, "value": policy.value(observation, memory)}
        last["action_mask"] = _all_legal(spec, (self._slots,))
        return Trajectory(
            **steps,
            reward=self._random.normal(size=shape + spec.reward.shape).astype(np.float32),
            terminated=done,
            truncated=np.zeros(shape, np.bool_),
            last={name: last[name] for name in spec.last},
            cut=zeros(spec.cut, shape),
            cut_at=None if spec.cut_observation is None else np.zeros((0, 2), np.int64),
            cut_observation=None if spec.cut_observation is None else empty(spec.cut_observation, (0,)),
            cut_action_mask=None if spec.cut_action_mask is None else empty(spec.cut_action_mask, (0,)),
            version=np.full(self._slots, self.version),
            episodes=np.zeros((int(done.sum()), self._columns), np.float32),
            memory=before,
            action_mask=_all_legal(spec, shape),
        )

    def close(self) -> None:
        """Do nothing: it holds nothing."""

    def _observations(self) -> object:
        space = self.policy.learning_space
        drawn = stacked(space, [space.sample() for _ in range(self._slots)])
        return map_tree(lambda spec, part: np.asarray(part, spec.dtype), spec_of(space), drawn)


def _all_legal(spec: TrajectorySpec, leading: tuple[int, ...]) -> Tree | None:
    """Return masks [*leading, ...] by which all actions are legal; None for trajectories without masks."""
    if spec.action_mask is None:
        return None
    return map_tree(lambda leaf: np.ones((*leading, *leaf.shape), np.bool_), spec.action_mask)


class FakeBuffer(worker.ActorRole):
    """An actor with invented trajectories."""

    def _make_sampler(self) -> RandomSampler:
        settings, seed = self.config.env.settings(), self._next_seed()
        policy = build_policy(self.config.network, *envs.spaces(settings), seed, settings.value_channels)
        columns, legal_actions = 2 + len(settings.figures), envs.has_masks(settings.id)
        return RandomSampler(policy, self.config.env.num_envs, seed, columns, legal_actions, self._asked(policy))


class FakeGatewayBuffer(FakeBuffer):
    """A FakeBuffer for games that drive themselves, whose actors are gateways."""

    role = roles.GATEWAY


def run(config: Config) -> int:
    """Run the actor of this kind of environment; return the exit status. Raises ConfigurationError for a league."""
    if config.league is not None:
        raise ConfigurationError("league: random trajectories are of a run without one; leave it out")
    return worker.run(config, FakeGatewayBuffer if envs.is_gamecore(config.env.id) else FakeBuffer)


if __name__ == "__main__":
    role("gateway", run)()
