"""The Actor for a policy whose game has none of its own: it reads JSON and answers in JSON.

    tick    {"observation": [0.1, 0, 0, 0.2], "reward": 1.0}   ->   {"action": 1}
    end     {"reward": 1.0}

`observation` is nested like the observation space. The other fields may be left out. `reward`, earned since the last
action, is a number; it is an object or a list if the run has env.reward_channels. `agent` names one of several agents.
`action_mask` is true for each legal action, in a form of envs/masks.py.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from agents.policies import Policy
from envs.masks import Masks
from warren.trees import map_tree
from workers.gateway.actor import Actor, Unreadable


class JsonActor(Actor):
    """An actor that reads and answers JSON, as described above."""

    async def tick(self, body: bytes) -> str:
        message, agent = _read(body)
        if "observation" not in message:
            raise Unreadable("the body has no observation")
        if message.get("action_mask") is not None and not self.action_masks:
            raise Unreadable(f"action_mask: {self.action_space} has no actions to forbid; leave it out")
        try:  # a refused body has no effect: its reward is taken together with its observation, or not at all
            action = await self.act(
                message["observation"],
                agent=agent,
                action_mask=message.get("action_mask"),
                reward=message.get("reward"),
            )
        except ValueError as error:
            raise Unreadable(str(error)) from None
        return json.dumps({"action": map_tree(lambda part: np.asarray(part).tolist(), action)})

    async def end(self, body: bytes) -> bytes:
        message, agent = _read(body) if body else ({}, "")
        if message.get("reward") is not None:
            try:
                self.reward(message["reward"], agent=agent)
            except ValueError as error:
                raise Unreadable(str(error)) from None
        return b""


def _read(body: bytes) -> tuple[dict[str, Any], str]:
    try:
        message = json.loads(body)
    except (ValueError, RecursionError) as error:  # RecursionError: for lists in lists, a thousand deep
        raise Unreadable(f"the body is not JSON: {error}") from None
    if not isinstance(message, dict):
        raise Unreadable('the body is not an object like {"observation": ...}')
    if not isinstance(agent := message.get("agent", ""), str):
        raise Unreadable(f"agent: must be a text, is {type(agent).__name__}; leave it out where there is one agent")
    return message, agent


def json_actor(policy: Policy) -> type[JsonActor]:
    """Return the actor class for this policy's spaces."""
    declared = {
        "observation_space": policy.observation_space,
        "action_space": policy.action_space,
        "action_masks": Masks.of(policy.action_space) is not None,
    }
    return type("JsonActor", (JsonActor,), declared)
