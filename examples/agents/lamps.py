"""Three agents on a line light three lamps: your own environment whose agents learn together, by one policy.

    python -m envs.check examples/agents/lamps.py:Lamps
    python -m workers.train env.id=examples/agents/lamps.py:Lamps
    python -m workers.train env.id=examples/agents/lamps.py:Lamps env.state=true +network.privileged=[state]
    python -m workers.train env.id=examples/agents/lamps.py:Lamps algorithm=qmix algorithm.target_every=50

With the second command the value function sees what the agent sees, with the third the whole game (MAPPO). The fourth
learns each agent's action values, which are combined into the game's value (QMIX).

The class has the methods of PettingZoo's ParallelEnv, and need not derive from it. An agent that comes to a dark lamp
lights it and leaves the game. Each step costs the whole team a tenth for each lamp that is still dark.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

CELLS, LAMPS, STEPS = 7, 3, 20
LEFT, STAY, RIGHT = range(3)


class Lamps:
    """An agent sees its own cell and the dark lamps; only the state shows where the other agents are."""

    metadata = {"name": "lamps"}

    def __init__(self, agents: int = 3, cells: int = CELLS) -> None:
        self.cells = cells
        self.possible_agents = [f"walker_{i}" for i in range(agents)]
        self.agents: list[str] = []
        self.state_space = spaces.Box(0, 1, (2 * cells,), np.float32)

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Box(0, 1, (2 * self.cells,), np.float32)

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Discrete(3)

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Any]:
        if seed is not None:
            self.random = np.random.default_rng(seed)
        self.agents, self.steps = list(self.possible_agents), 0
        self.place = dict(zip(self.agents, self.random.integers(0, self.cells, len(self.agents)).tolist(), strict=True))
        self.dark = np.zeros(self.cells, np.float32)
        self.dark[self.random.choice(self.cells, LAMPS, replace=False)] = 1
        return self.observe(self.agents)

    def step(self, actions: dict[str, int]) -> tuple[Any, Any, Any, Any, Any]:
        acting, self.steps = self.agents, self.steps + 1
        lit = set()
        for agent in acting:
            self.place[agent] += int(actions[agent]) - STAY
            if self.dark[self.place[agent]]:
                self.dark[self.place[agent]] = 0
                lit.add(agent)
        won, cut = not self.dark.any(), self.steps == STEPS
        ended = {agent: won or agent in lit for agent in acting}
        self.agents = [] if won or cut else [agent for agent in acting if agent not in lit]
        observations, infos = self.observe(acting)
        rewards = dict.fromkeys(acting, -0.1 * float(self.dark.sum()))
        return observations, rewards, ended, dict.fromkeys(acting, cut), infos

    def state(self) -> np.ndarray:
        """Return how many walkers are in each cell, as shares, and which lamps are dark."""
        crowd = np.bincount([self.place[agent] for agent in self.agents], minlength=self.cells)
        return np.concatenate([crowd / len(self.possible_agents), self.dark]).astype(np.float32)

    def observe(self, agents: list[str]) -> tuple[dict[str, Any], dict[str, Any]]:
        seen, infos = {}, {}
        for agent in agents:
            here = np.zeros(self.cells, np.float32)
            here[self.place[agent]] = 1
            seen[agent] = np.concatenate([here, self.dark])
            infos[agent] = {"action_mask": [self.place[agent] > 0, True, self.place[agent] < self.cells - 1]}
        return seen, infos

    def render(self) -> str:
        """Return the line as text: walkers over lamps."""
        walkers = [sum(self.place[agent] == cell for agent in self.agents) for cell in range(self.cells)]
        return " ".join(f"{n or ' '}{'*' if dark else '.'}" for n, dark in zip(walkers, self.dark, strict=True))

    def close(self) -> None:
        """Do nothing: no resources are open."""
