"""A gateway in this process, with an untrained policy, on ports of the loopback interface."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Discrete

from agents import build_policy
from envs.rewards import Rewards
from workers.gateway import Actor, Unreadable
from workers.gateway.limits import Limits
from workers.gateway.neighbours import Neighbours
from workers.gateway.sampler import GatewaySampler
from workers.gateway.server import Server, opener
from workers.gateway.sessions import Sessions

LENGTH, SLOTS = 8, 2


class Echo(Actor):
    """Acts on JSON {"observation": [..], "reward": ..., "last": [..]}."""

    observation_space = Box(-10, 10, (3,), np.float32)
    action_space = Discrete(2)

    async def tick(self, body: bytes) -> str:
        try:
            message = json.loads(body)
        except ValueError as error:
            raise Unreadable(f"no JSON: {error}") from None
        self.reward(message.get("reward", 0.0))
        return str(int(await self.act(message["observation"])))

    async def end(self, body: bytes) -> str:
        message = json.loads(body or b"{}")
        self.reward(message.get("reward", 0.0))
        if "last" in message:
            self.over(last=message["last"])
        return "bye"


class Gateway:
    """Sampler, sessions and server of one actor class."""

    def __init__(
        self,
        actor: type[Actor] = Echo,
        token: str | None = None,
        shared: Neighbours | None = None,
        port: int = 0,
        **limits: Any,
    ) -> None:
        """Start the gateway; `shared`: the gateways with which it shares its port."""
        self.policy = build_policy({"hidden_sizes": [8]}, actor.observation_space, actor.action_space, 0)
        self.sampler = GatewaySampler(
            self.policy, LENGTH, SLOTS, Rewards(), 0, patience=0, legal_actions=actor.action_masks
        )
        self.sampler.load(self.policy.state_dict(), 0)
        self.limits = Limits(**limits)
        self.sessions = Sessions(
            opener(actor, {}, self.sampler, Rewards(), self.limits),
            self.limits,
            token,
            ready=lambda: self.sampler.ready,
            elsewhere=shared,
        )
        self.server, self._shared = (
            Server(self.sessions, "127.0.0.1", port, tcp_port=0, shared=shared is not None),
            shared,
        )
        if shared is not None:
            shared.enter(f"http://127.0.0.1:{self.server.own_port}")
        self.server.start()

    def close(self) -> None:
        self.server.stop()
        if self._shared is not None:
            self._shared.leave()
        self.sampler.close()
