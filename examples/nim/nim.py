"""Nim: two players take one to three of fifteen stones in turn; the player that takes the last stone wins."""

import numpy as np
from gymnasium.spaces import Box, Dict, Discrete
from pettingzoo import AECEnv


class Nim(AECEnv):
    metadata = {"name": "nim"}
    possible_agents = ["first", "second"]

    def observation_space(self, agent):
        return Dict({"observation": Box(0, 1, (16,), np.float32), "action_mask": Box(0, 1, (3,), np.int8)})

    def action_space(self, agent):
        return Discrete(3)

    def reset(self, seed=None, options=None):
        self.left, self.agents, self.agent_selection = 15, list(self.possible_agents), "first"
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict(self.rewards)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.infos = {agent: {} for agent in self.agents}

    def observe(self, agent):
        return {"observation": np.eye(16, dtype=np.float32)[self.left], "action_mask": np.arange(1, 4) <= self.left}

    def step(self, action):
        if self.terminations[self.agent_selection]:
            return self._was_dead_step(action)
        me, self.agent_selection = self.agent_selection, {"first": "second", "second": "first"}[self.agent_selection]
        self.left -= action + 1
        if self.left == 0:
            self.rewards = {me: 1.0, self.agent_selection: -1.0}
            self.terminations = dict.fromkeys(self.agents, True)
        return None

    def text(self, agent):  # for people who play it: optional, as action_text(agent, action) is
        return f"{self.left} stones are left; 0 takes one of them, 1 two, 2 three"
