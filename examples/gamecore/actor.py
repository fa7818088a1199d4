"""The Actor for the CartPole game in game.py: it reads the game's JSON and answers with the policy's action."""

import json

import numpy as np
from gymnasium.spaces import Box, Discrete

from workers.gateway import Actor, Unreadable


class CartPole(Actor):
    observation_space = Box(-np.inf, np.inf, (4,), np.float32)
    action_space = Discrete(2)

    async def start(self, body):
        return b"welcome"

    async def tick(self, body):
        message = read(body)
        self.reward(message["reward"])
        action = await self.act(message["observation"])
        return json.dumps({"action": int(action)})

    async def end(self, body):
        message = read(body)
        self.reward(message["reward"])
        if message["out_of_time"]:  # the pole had not fallen: only the time limit ended the game
            self.over(last=message["observation"])


def read(body):
    try:
        return json.loads(body)
    except ValueError as error:
        raise Unreadable(str(error)) from None
