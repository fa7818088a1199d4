"""Actors that `benchmarks.gamecore` serves, which read raw arrays: one for a small network, one for images."""

import numpy as np
from gymnasium.spaces import Box, Discrete

from workers.gateway import Actor


class Vector(Actor):
    """CartPole's shapes: 16 bytes in, one out."""

    observation_space = Box(-np.inf, np.inf, (4,), np.float32)
    action_space = Discrete(2)

    async def tick(self, body: bytes) -> bytes:
        return bytes([await self.act(np.frombuffer(body, np.float32))])


class Image(Actor):
    """Atari's: 28 kB in."""

    observation_space = Box(0, 255, (4, 84, 84), np.uint8)
    action_space = Discrete(6)

    async def tick(self, body: bytes) -> bytes:
        return bytes([await self.act(np.frombuffer(body, np.uint8).reshape(4, 84, 84))])
