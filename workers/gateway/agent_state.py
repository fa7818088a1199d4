"""The part of a Player's knowledge of an agent that training and serving share: its memory and its rewards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from envs.rewards import Rewards
from workers.gateway.game import Agent

P = TypeVar("P", bound="AgentState")
M = TypeVar("M")  # an array or a tensor


class AgentState:
    """One agent, from its first decision to the end of its episode."""

    __slots__ = ("length", "memory", "returns")

    def __init__(self) -> None:
        self.memory: Mapping[str, Any] = {}  # after its last decision
        self.length = 0  # decisions whose outcome is known
        self.returns: Any = 0.0  # sum of rewards as given, by channel

    @classmethod
    def of(cls: type[P], agent: Agent) -> P:
        """Return the agent's state, a new one if it has none yet."""
        if agent.state is None:
            agent.state = cls()
        state: P = agent.state
        return state

    def earn(self, rewards: Rewards, earned: Any) -> Any:
        """Count the reward `earned` by the last decision, and return it by channel, as `rewards` declares them."""
        given = earned + np.zeros(len(rewards.channels)) if rewards.channels else earned
        self.returns = self.returns + given
        self.length += 1
        return given


def remembered(memory: dict[str, M], players: Sequence[AgentState]) -> dict[str, M]:
    """Write the memory of each of `players` into its row of `memory`, which is the initial one, and return it."""
    part: Any
    for name, part in memory.items():
        for row, player in enumerate(players):
            if player.memory:
                part[row] = player.memory[name]
    return memory
