"""A policy with privileged observations is served without them."""

from __future__ import annotations

import http.client
import json
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete

import envs
from agents import build_algorithm, build_policy, checkpoints
from workers.config.schema import Config, EnvConfig, GatewayConfig, to_yaml
from workers.deployment.role import Deployment
from workers.deployment.settings import DeployConfig
from workers.gateway import Actor
from workers.runtime.trained import load

SHOWN = Dict({"shown": Box(-1, 1, (2,), np.float32)})
WHOLE = Dict({**SHOWN.spaces, "hidden": Box(-1, 1, (3,), np.float32)})
NETWORK = {"name": "mlp", "hidden_sizes": [8], "policy_gain": 1.0, "privileged": ["hidden"]}


class Game(gymnasium.Env[Any, Any]):
    """Environment of training, which gives the hidden part, too."""

    observation_space, action_space = WHOLE, Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return WHOLE.sample(), {}

    def step(self, action: Any) -> Any:
        return WHOLE.sample(), 0.0, False, False, {}


class Seeing(Actor):
    """Two floats in, the action out."""

    observation_space, action_space = SHOWN, Discrete(2)

    async def tick(self, body: bytes) -> bytes:
        return bytes([await self.act({"shown": np.frombuffer(body, np.float32)})])


class Knowing(Seeing):
    """Actor that gives the hidden part, too, as in training."""

    observation_space = WHOLE

    async def tick(self, body: bytes) -> bytes:
        whole = {"shown": np.frombuffer(body, np.float32), "hidden": np.ones(3, np.float32)}
        return bytes([await self.act(whole)])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return the folder of a run with such a policy."""
    config = Config(network=NETWORK, env=EnvConfig(id=f"{__file__}:Game"))
    (tmp_path / "config.yaml").write_text(to_yaml(config))
    policy = build_policy(NETWORK, *envs.spaces(config.env.settings()), 0)
    checkpoints.save(tmp_path / "checkpoints", "00000001", policy, build_algorithm("ppo", {}, policy, 0), {})
    return tmp_path


@pytest.mark.parametrize("actor", [None, "Seeing", "Knowing"])
def test_a_policy_is_served_without_its_privileged_observations(folder: Path, actor: str | None) -> None:
    trained = load(folder)
    seen = np.array([0.5, -1], np.float32)
    expected = int(trained.act({"shown": seen}))
    assert expected == int(trained.act({"shown": seen, "hidden": np.ones(3, np.float32)}))
    deployment = Deployment(
        DeployConfig(
            run=str(folder),
            mode="greedy",
            actor=None if actor is None else f"{__file__}:{actor}",
            gateway=GatewayConfig(port=0, tcp_port=0),
        )
    )
    deployment.start()
    try:
        connection = http.client.HTTPConnection("127.0.0.1", deployment.server.port, timeout=30)
        body = seen.tobytes() if actor else json.dumps({"observation": {"shown": seen.tolist()}}).encode()
        for kind, given in (("start", b""), ("tick", body)):
            connection.request("POST", "/", given, {"session": "a", "step_kind": kind})
            reply = connection.getresponse()
            said = reply.read()
            assert reply.status == 200, said
        assert (said[0] if actor else json.loads(said)["action"]) == expected
    finally:
        deployment.close()
