"""A learner's run without servers: a folder, a pool, a ledger, and segments of CartPole."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import redis

import envs
from agents import build_policy
from league.models.model import checksum_of
from workers.config.schema import Config, EnvConfig
from workers.learning.plain import plain_trainer
from workers.rollout.vector_sampler import VectorSampler
from workers.runtime.segment_ledger import Settled

CARTPOLE = "CartPole-v1"


class Pool:
    """A stand-in for a learner's pool, without Redis."""

    def __init__(self, order: list[str]) -> None:
        self.models: dict[int, Any] = {}
        self.order = order
        self.away = False

    def put(self, player: str, version: int, step: int, data: bytes) -> bool:
        self.order.append(f"put {version}")
        if self.away:
            raise redis.ConnectionError("Redis is away")
        if self.models and version <= max(self.models):
            return False
        created = os.times().elapsed
        self.models[version] = SimpleNamespace(version=version, step=step, data=data, created=created)
        return True

    def version(self, player: str) -> int | None:
        return max(self.models, default=None)

    def newest(self, player: str, newer_than: int = -1) -> Any:
        version = max(self.models, default=-1)
        return self.models[version] if version > newer_than else None

    def info(self, ref: Any) -> Any:
        model = self.models.get(ref.version)
        return model and SimpleNamespace(checksum=checksum_of(model.data))


class Run:
    """The folder and the pool of a run; `trainer` makes the trainer of its next process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.order: list[str] = []
        self.settled: list[dict[str, list[tuple[int, int]]]] = []  # per call: kind -> segments' numbers and steps used
        self.pool = Pool(self.order)
        self.refusing: Exception | None = None
        self.session: Any = SimpleNamespace(
            config=Config(
                trial="t", run="r", env=EnvConfig(id=CARTPOLE, num_envs=2), algorithm={"name": "ppo", "epochs": 1}
            ),
            pool=self.pool,
            ledger=SimpleNamespace(settle=self.settle),
            events=SimpleNamespace(fire=lambda name, payload, another_follows=False: None),
        )
        vector = envs.make_vector(CARTPOLE, 2, 1)
        policy = build_policy({}, vector.single_observation_space, vector.single_action_space, 1)
        self.sampler = VectorSampler(vector, policy, 1)
        self.number = 0

    def settle(self, settled: Iterable[Settled], teller: str, number: int) -> None:
        self.order.append("settle")
        if self.refusing is not None:
            raise self.refusing
        found: dict[str, list[tuple[int, int]]] = {}
        for segment, kind, used in settled:
            assert (segment.source, segment.steps) == ("a", 32)
            found.setdefault(kind, []).append((segment.number, used))
        self.settled.append(found)

    def trainer(self) -> Any:
        return plain_trainer(self.session, self.folder, on_finished=lambda: None)

    def payload(self, version: int = 0) -> dict[str, Any]:
        self.sampler.load(self.sampler.policy.state_dict(), version)
        self.number += 1
        trajectory = self.sampler.collect(16).to_dict()
        made = {"source": "a", "number": self.number, "steps": 32}
        return {**made, "first_step_at": 0.0, "collected_at": 0.0, "trajectory": trajectory}
