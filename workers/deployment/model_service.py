"""A run's model as services that any process of the run calls:

python -m workers.serve workers.deployment.model_service:Model --kwargs '{"run": "runs/cartpole/TRIAL"}'

solver.call("model.forward", observations, {})                 # {"action", "memory", "version"}
solver.call("model.get_model", "main", -1)                     # {"player", "version", "step", "data"}
solver.call("model.publish_weights", data, 1000)               # the version that they got
solver.call("model.clone", "champion")                         # "champion@73"
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from agents.checkpoints import encode_weights, load_weights, weights_from_bytes
from league.models.pool import Pool
from league.redis.store import Store
from tasks import context
from tasks.events import WEIGHTS, EventDispatcher
from tasks.service import Worker, event_handler, service
from warren import redis_client
from warren.errors import ConfigurationError, PoolError
from warren.trees import map_tree, take
from workers.deployment.backends import PytorchBackend
from workers.deployment.cloning import clone
from workers.runtime.trained import load

NEWEST = -1


class Model(Worker):
    """Decides by the newest weights of `player` that its run publishes; until then by those of the run folder `run`."""

    role = "model"

    def __init__(self, run: str, player: str = "main", seed: int = 0) -> None:
        super().__init__()
        app, topology = context.current()
        trained = load(run, player)
        self.player, self.version = player, trained.version
        self._backend = PytorchBackend(trained.policy.requires_grad_(False))
        self._generator = torch.Generator().manual_seed(seed)
        self._redis = redis_client.connect(app.conf.result_backend)
        self._prefix = topology.key_prefix
        self._pool = Pool(self._redis, self._prefix)
        self._events = EventDispatcher(app, topology)
        torch.set_num_threads(1)
        if (newest := self._pool.newest(player, newer_than=self.version)) is not None:
            self._take(newest.version, newest.data)

    @service(batch=64)
    def forward(self, calls: Sequence[tuple[Any, dict[str, np.ndarray]]]) -> list[Any]:
        """(observations [N, ...], memory before them, {} where episodes begin) -> {"action": [N, ...] as the action
        space has them, "memory": after them, "version"}, all calls in one forward pass."""
        policy, counts = self._backend.policy, [_rows(observation) for observation, _ in calls]
        whole = map_tree(lambda *parts: np.concatenate(parts), *(observation for observation, _ in calls))
        begun = [
            memory or self._backend.initial_memory(count) for (_, memory), count in zip(calls, counts, strict=True)
        ]
        before = map_tree(lambda *parts: np.concatenate(parts), *begun)
        drawn, after = self._backend.act(whole, before, "sample", self._generator)
        actions, ends = policy.env_action(drawn), np.cumsum(counts)
        parts = [slice(int(end) - count, int(end)) for end, count in zip(ends, counts, strict=True)]
        return [{"action": take(actions, one), "memory": take(after, one), "version": self.version} for one in parts]

    @service
    def get_model(self, player: str, version: int = NEWEST) -> dict[str, Any]:
        """Weights from the run's pool, as safetensors bytes; of `version`, or the newest."""
        model = self._pool.newest(player) if version == NEWEST else self._pool.get(player, version)
        if model is None:
            raise PoolError(f"the pool holds no weights of player {player!r} yet; its learner has published none")
        return {"player": model.player, "version": model.version, "step": model.step, "data": model.data}

    @service(retries=0)
    def publish_weights(self, data: bytes, step: int) -> int:
        """Safetensors bytes of `weights_to_bytes`, made at `step`: into the pool, and to every actor; their version."""
        tensors, stamp = weights_from_bytes(data)
        load_weights(self._backend.policy, tensors, "published weights")  # or it is refused
        newest = self._pool.version(self.player)
        version = max(self.version, -1 if newest is None else newest)
        while True:
            version += 1
            stamped = {"behaviour": {}, **stamp, "player": self.player, "version": version, "step": step}
            encoded = encode_weights(tensors, stamped)
            if self._pool.put(self.player, version, step, encoded):
                break
        self.version = version
        self._events.fire(WEIGHTS, {**stamped, "data": encoded})
        return version

    @service
    def clone(self, name: str) -> str:
        """What it decides by becomes a player of the run's league, which learns nothing; the name of its model."""
        store = Store(self._redis, f"{self._prefix}league:")
        if not store.exists():
            raise ConfigurationError(f"clone {name}: this run has no league; python -m workers.clone names another")
        return str(clone(store, self._pool, self._backend.policy, self.version, name, by="model.clone"))

    @event_handler(WEIGHTS, latest=True)
    def on_weights(self, payload: dict[str, Any]) -> None:
        """The learner published."""
        if payload["player"] == self.player and payload["version"] > self.version:
            self._take(payload["version"], payload["data"])

    def _take(self, version: int, data: bytes) -> None:
        load_weights(self._backend.policy, weights_from_bytes(data)[0], f"weights of version {version}")
        self.version = version


def _rows(observation: Any) -> int:
    """N."""
    while isinstance(observation, dict | tuple):
        observation = next(iter(observation.values())) if isinstance(observation, dict) else observation[0]
    return len(observation)
