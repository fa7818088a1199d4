"""The Actor for the game in nim.py: both players are agents of one session, and sides of a league's match."""

import json

import numpy as np
from gymnasium.spaces import Box, Discrete

from workers.gateway import Actor

STONES = 15


class Nim(Actor):
    observation_space = Box(0, 1, (STONES + 1,), np.float32)
    action_space = Discrete(3)  # one to three stones
    action_masks = True
    sides = ("first", "second")

    async def tick(self, body):
        message = json.loads(body)
        left = message["left"]
        action = await self.act(
            np.eye(STONES + 1, dtype=np.float32)[left], agent=message["player"], action_mask=np.arange(1, 4) <= left
        )
        return json.dumps({"take": int(action) + 1})

    async def end(self, body):
        winner = json.loads(body)["winner"]
        for player in self.sides:
            self.reward(1.0 if player == winner else -1.0, agent=player)
