"""Masks that an Actor gives with its observations: used in acting, trajectories and learning."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from support.game_clients import Http
from support.gateways import LENGTH, SLOTS

import envs
from agents import build_algorithm
from agents.trajectories import Trajectory
from warren.errors import ConfigurationError
from workers.gateway import Actor

ACTIONS = 6


class Masked(Actor):
    """Acts on JSON {"observation": [..], "legal": [..]}."""

    observation_space = Box(-10, 10, (3,), np.float32)
    action_space = Discrete(ACTIONS)
    action_masks = True

    async def tick(self, body: bytes) -> str:
        message = json.loads(body)
        self.reward(1.0)
        return str(int(await self.act(message["observation"], action_mask=message.get("legal"))))


def test_an_actors_masks_are_used_in_acting_trajectories_and_learning(gateways: Any) -> None:
    gateway = gateways(Masked)
    http, random = Http(gateway.server.port), np.random.default_rng(0)
    legal = random.random((LENGTH * SLOTS + 2, ACTIONS)) < 0.4
    legal[:, 0] |= ~legal.any(1)
    assert http.game("a", "start")[0] == 200
    for tick, mask in enumerate(legal):
        message = {"observation": [tick % 5, 1, 2], "legal": mask.tolist() if tick else None}  # without a mask all are
        status, action = http.game("a", "tick", message)
        assert status == 200 and (tick == 0 or mask[int(action)])
    sampler, policy = gateway.sampler, gateway.policy
    trajectory = Trajectory.from_dict(sampler.collect(LENGTH).to_dict(), policy.spec(legal_actions=True))
    legal[0] = True
    assert (trajectory.action_mask.swapaxes(0, 1).reshape(-1, ACTIONS) == legal[: LENGTH * SLOTS]).all()
    tensors = [torch.from_numpy(part.reshape(-1)) for part in (trajectory.action, trajectory.extras["log_prob"])]
    seen = policy.leaves(trajectory.observation.reshape(-1, 3))
    mask = torch.from_numpy(trajectory.action_mask.reshape(-1, ACTIONS))
    assert torch.allclose(policy.evaluate(seen, tensors[0], mask).log_prob, tensors[1], atol=1e-5)
    assert not torch.allclose(policy.evaluate(seen, tensors[0]).log_prob, tensors[1], atol=1e-2)
    algorithm = build_algorithm("ppo", {"minibatch_size": LENGTH, "epochs": 1}, policy, 0)
    assert all(map(np.isfinite, algorithm.update([trajectory]).metrics.values()))


@pytest.mark.parametrize(
    ("legal", "said"),
    [
        ([True] * 5, "the game gave an action_mask of 5 numbers; Discrete(6) has 6 choices"),
        ([0, 1, 2, 0, 0, 0], "the game gave the action_mask [0, 1, 2, 0, 0, 0]; its numbers are True or False"),
        ([[0], [0, 1]], "the game gave an action_mask of 3 numbers"),
        ("no", "the game gave the action_mask 'no', which is not of numbers"),
        ([False] * 6, "which leaves no legal action"),
    ],
)
def test_a_wrong_mask_is_refused(gateways: Any, legal: Any, said: str) -> None:
    http = Http(gateways(Masked).server.port)
    assert http.game("a", "start")[0] == 200
    status, body = http.game("a", "tick", {"observation": [1, 2, 3], "legal": legal})
    assert status == 422 and said in json.loads(body)["error"]


def test_masks_of_an_actor_that_declares_none_are_refused(gateways: Any) -> None:
    http = Http(gateways(type("Undeclared", (Masked,), {"action_masks": False})).server.port)
    assert http.game("a", "start")[0] == 200
    status, body = http.game("a", "tick", {"observation": [1, 2, 3], "legal": [1] * 6})
    assert status == 422 and "action_masks = True" in json.loads(body)["error"]


def test_the_actor_class_declares_whether_there_are_masks(tmp_path: Path) -> None:
    file = tmp_path / "actors.py"
    file.write_text(
        "import numpy as np\nfrom gymnasium.spaces import Box, Discrete\nfrom workers.gateway import Actor\n"
        "class Plain(Actor):\n    observation_space, action_space = Box(0, 1, (2,)), Discrete(2)\n"
        "class Masked(Plain):\n    action_masks = True\n"
        "class Wrong(Masked):\n    action_space = Box(0, 1, (2,))\n"
    )
    assert [envs.has_masks(env) for env in ("CartPole-v1", f"gamecore:{file}:Plain", f"gamecore:{file}:Masked")] == [
        False, False, True,
    ]  # fmt: skip
    with pytest.raises(ConfigurationError, match="of Discrete actions"):
        envs.has_masks(f"gamecore:{file}:Wrong")
