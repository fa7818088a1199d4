"""Tests of targets in a game whose illegal action looks best: at the newest stored step and at cut episodes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode

import envs
from agents import Batch, Policy, Trajectory, build_algorithm, build_policy
from agents.algorithms.transitions import transitions
from agents.replay import ReplayBuffer
from agents.trajectories import CUT_OBSERVATION
from agents.trees import spec_of
from envs import EnvSettings
from envs.masks import Masks
from envs.rewards import Rewards
from workers.env.group import Group
from workers.gateway.game import Game
from workers.gateway.sampler import GatewaySampler
from workers.rollout.served.sampler import ServedSampler
from workers.rollout.vector_sampler import VectorSampler

pytestmark = pytest.mark.usefixtures("one_thread")
LENGTH, SLOTS, EPISODE, ACTIONS = 8, 2, 5, 4
SEEN, CHOICES = Box(0, 100, (2,), np.float32), Discrete(ACTIONS)


def illegal(observation: Any) -> Any:
    """Return the one illegal action, which is part of the observation."""
    return np.asarray(observation)[..., 1].astype(int)


def legal(observation: Any) -> np.ndarray:
    return np.arange(ACTIONS) != illegal(observation)[..., None]


class Tempting(gymnasium.Env):
    """A user's game that fails at an illegal action, and is cut off after five steps."""

    observation_space, action_space = SEEN, CHOICES

    def __init__(self, form: str = "info") -> None:
        self.form, self.count = form, 0
        if form == "key":
            mask = Box(0, 1, (ACTIONS,), np.int8)
            self.observation_space = gymnasium.spaces.Dict({"observation": SEEN, "action_mask": mask})

    def seen(self) -> Any:
        self.now = np.array([self.count, (3 * self.count + 1) % ACTIONS], np.float32)
        mask = legal(self.now).astype(np.int8)
        return ({"observation": self.now, "action_mask": mask}, {}) if self.form == "key" else (
            self.now, {"action_mask": mask},
        )  # fmt: skip

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.count, self.until = 0, EPISODE
        return self.seen()

    def step(self, action: Any) -> Any:
        assert action != illegal(self.now)
        self.count += 1
        seen, info = self.seen()
        return seen, 1.0, False, self.count == self.until, info


class TemptingVector(gymnasium.vector.VectorEnv):
    """The same game as a user's own vector environment."""

    def __init__(self, num_envs: int, form: str = "info") -> None:
        self.metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}
        self.games, self.num_envs, self.form = [Tempting(form) for _ in range(num_envs)], num_envs, form
        self.single_observation_space, self.single_action_space = self.games[0].observation_space, CHOICES

    def batch(self, told: list[Any]) -> Any:
        if self.form == "key":
            return {key: np.stack([one[0][key] for one in told]) for key in told[0][0]}, {}
        return np.stack([one[0] for one in told]), {"action_mask": np.stack([one[1]["action_mask"] for one in told])}

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        return self.batch([game.reset() for game in self.games])

    def step(self, actions: Any) -> Any:
        told = [game.step(action) for game, action in zip(self.games, actions, strict=True)]
        cut, final = np.array([one[3] for one in told]), np.empty(self.num_envs, object)
        now, masks = [(one[0], one[4]) for one in told], np.zeros((self.num_envs, ACTIONS), np.int8)
        for i in np.flatnonzero(cut):
            final[i] = told[i][0]
            masks[i] = told[i][4].get("action_mask", 0)
            now[i] = self.games[i].reset()
        observation, info = self.batch(now)
        if cut.any():
            info |= {"final_obs": final} | ({} if self.form == "key" else {"final_info": {"action_mask": masks}})
        return observation, np.ones(self.num_envs), np.zeros(self.num_envs, bool), cut, info


class TemptingTeam:
    """The same game for two agents, as a parallel game of PettingZoo; the second leaves two steps earlier."""

    possible_agents, metadata = ("a", "b"), {"name": "tempting"}

    def __init__(self) -> None:
        self.games = {agent: Tempting() for agent in self.possible_agents}
        self.agents: list[str] = []

    def observation_space(self, agent: str) -> Any:
        return SEEN

    def action_space(self, agent: str) -> Any:
        return CHOICES

    def reset(self, seed: Any = None, options: Any = None) -> Any:
        self.agents = list(self.possible_agents)
        told = {agent: self.games[agent].reset() for agent in self.agents}
        self.games["b"].until = EPISODE - 2  # it leaves earlier
        return {agent: one[0] for agent, one in told.items()}, {agent: one[1] for agent, one in told.items()}

    def step(self, actions: Any) -> Any:
        told = {agent: self.games[agent].step(action) for agent, action in actions.items()}
        self.agents = [agent for agent in self.agents if not told[agent][3]]
        return tuple({agent: one[i] for agent, one in told.items()} for i in range(5))

    def close(self) -> None: ...


def greedy(observations: Any = SEEN) -> Policy:
    settings = {"hidden_sizes": [8], "discrete_actions": {"greedy": True}, "value": False}
    policy = build_policy(settings, observations, CHOICES, 3)
    policy.behaviour = {"epsilon": 1.0}  # any legal action
    return policy


def stepped(env: str = "Tempting", **kwargs: Any) -> Callable[[], tuple[Policy, list[Trajectory]]]:
    more = {"workers": kwargs.pop("workers", 0), "together": kwargs.pop("together", False)}

    def collected() -> tuple[Policy, list[Trajectory]]:
        vector = envs.make_vector(EnvSettings(f"{__file__}:{env}", kwargs, **more), SLOTS, 5)
        policy = greedy(vector.single_observation_space)
        sampler = VectorSampler(vector, policy, 3, fields=(CUT_OBSERVATION,))
        found = [sampler.collect(LENGTH) for _ in range(3)]
        sampler.close()
        return policy, found

    return collected


def served() -> tuple[Policy, list[Trajectory]]:
    policy, found = greedy(), []
    sampler = ServedSampler(policy, LENGTH, SLOTS, 3, fields=(CUT_OBSERVATION,), legal_actions=True)
    sampler.load(policy.state_dict(), 0, policy.behaviour)
    group = Group("a", EnvSettings(f"{__file__}:Tempting"), SLOTS, 3)
    for _ in range(3):
        while not sampler._complete:
            (answer,) = sampler.act([group.call()])
            assert isinstance(answer, dict), answer
            group.step(answer)
        found.append(sampler.collect(LENGTH))
    return policy, found


def driven() -> tuple[Policy, list[Trajectory]]:
    """Play games that drive themselves: they are cut off at an observation, or abandoned."""
    policy = greedy()
    sampler = GatewaySampler(policy, LENGTH, SLOTS, Rewards(), 3, legal_actions=True, fields=(CUT_OBSERVATION,))
    sampler.load(policy.state_dict(), 0, policy.behaviour)

    async def play() -> None:
        for episode in range(7):
            game = Game("a", sampler, spec_of(SEEN), Rewards(), asyncio.get_running_loop(), Masks(Discrete(ACTIONS)))
            own = Tempting()
            seen, info = own.reset()
            for _ in range(EPISODE):
                action = await game.act(seen, "", info["action_mask"])
                seen, reward, _, _, info = own.step(action)
                game.reward(reward, "")
            if episode % 2:
                game.abandon()
            else:
                game.over("", seen, info["action_mask"])

    asyncio.run(play())
    found = [sampler.collect(LENGTH) for _ in range(2)]
    sampler.close()
    return policy, found


WAYS = {
    "info": stepped(), "key": stepped(form="key"), "processes": stepped(workers=1),
    "own vector": stepped("TemptingVector"), "own vector, key": stepped("TemptingVector", form="key"),
    "agents": stepped("TemptingTeam", together=True), "served": served, "driven": driven,
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_the_illegal_action_that_looks_best_is_no_target(way: str) -> None:
    policy, collected = WAYS[way]()
    buffer = ReplayBuffer(10_000, seed=4)
    for number, trajectory in enumerate(collected):
        checked = Trajectory.from_dict(trajectory.to_dict(), policy.spec(True, fields=(CUT_OBSERVATION,)))
        assert np.array_equal(checked.cut_action_mask, legal(checked.cut_observation)) and len(checked.cut_at)
        buffer.add(checked, "a", number)
    algorithm = build_algorithm("dqn", {"double": False}, policy, 1)
    drawn = buffer.draw(300)
    found = transitions(policy, Batch([drawn.trajectory]), 0.5)
    following = found.following.numpy()
    with torch.no_grad():  # the illegal action is worth 100 at every observation, and others nothing
        algorithm.target.outputs = lambda seen: policy.outputs(seen)._replace(  # type: ignore[method-assign]
            policy=torch.from_numpy(100.0 * ~legal(seen.numpy())).float()
        )
    targets = algorithm.targets(found)[:, 0]
    alive = np.ones(300, bool) if drawn.trajectory.valid is None else drawn.trajectory.valid[0]
    assert np.array_equal(found.legal.numpy()[alive], legal(following)[alive])
    torch.testing.assert_close(targets, found.reward)
    newest = drawn.items >= len(buffer) - len(collected[-1].reward) * collected[-1].num_slots
    assert newest.any() and drawn.trajectory.truncated.any()
