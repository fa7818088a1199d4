"""Replays of the user's own, examples/replay, with every algorithm that draws from a replay."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.learner_run import Run

import envs
from agents import build_algorithm, build_policy
from agents.replay.own import OwnBuffer
from benchmarks.apparatus.seeds import composed
from workers.rollout.vector_sampler import VectorSampler
from workers.runtime.segment_ledger import Settled

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
CARTPOLE, PENDULUM = "env=cartpole", "env.id=Pendulum-v1"
SHORT = ("algorithm.burn_in=2", "algorithm.learned=4", "algorithm.n_steps=2", "network.core.size=8")
CRITIC = ("algorithm.critic.hidden_sizes=[16]", "algorithm.random_steps=0")
ALGORITHMS = {
    "dqn": (CARTPOLE, "algorithm=dqn", "algorithm.n_steps=3"),
    "qrdqn": (CARTPOLE, "algorithm=dqn", "algorithm.quantiles=5", "algorithm.double=false"),
    "r2d2": ("env.id=envs.hidden_velocities:CartPole", "algorithm=r2d2", *SHORT),
    "sac": (PENDULUM, "algorithm=sac", *CRITIC),
    "td3": (PENDULUM, "algorithm=td3", *CRITIC),
    "ddpg": (PENDULUM, "algorithm=ddpg", *CRITIC),
    "impala": (CARTPOLE, "algorithm=impala", "sampling=streaming", "algorithm.replay_length=8"),
    "qmix": (f"env.id={EXAMPLES / 'agents/lamps.py'}:Lamps", "algorithm=qmix", "algorithm.learned=4"),
}


@pytest.fixture(autouse=True)
def _(one_thread: None) -> None:
    pass


class AlgorithmRun(Run):
    """A run of segments of 8 steps, whose learner draws from a buffer of the examples."""

    def __init__(self, folder: Path, overrides: Iterable[str], buffer: str, **settings: int) -> None:
        super().__init__(folder)
        self.session.config = config = composed([
            *overrides, "trial=t", "run=r", "env.num_envs=2", "unroll_length=8", "network.hidden_sizes=[16]",
            "replay.capacity=4000", "replay.batch=8", "replay.samples_per_insert=2", "replay.begin_at=100",
            f"replay.buffer={EXAMPLES / 'replay' / buffer}:build",
            *(f"+replay.buffer_settings.{name}={value}" for name, value in settings.items()),
        ])  # fmt: skip
        self.session.ledger.keep = lambda count: None
        vector = envs.make_vector(config.env.settings(), 2, 1)
        policy = build_policy(config.network, vector.single_observation_space, vector.single_action_space, 1)
        given = {name: value for name, value in config.algorithm.items() if name != "name"}
        fields = build_algorithm(config.algorithm["name"], given, policy, 1).needs.fields
        self.sampler = VectorSampler(vector, policy, 1, fields=fields)

    def settle(self, settled: Iterable[Settled], teller: str, number: int) -> None:
        self.settled.append({kind: [(segment.number, used)] for segment, kind, used in settled})

    def payload(self, version: int = 0) -> dict[str, Any]:
        self.number += 1
        trajectory = self.sampler.collect(8)
        made = {"source": "a", "number": self.number, "steps": trajectory.num_steps}
        return {**made, "first_step_at": 0.0, "collected_at": 0.0, "trajectory": trajectory.to_dict()}

    def learn(self, segments: int) -> tuple[Any, list[Any]]:
        """Return the trainer after these segments, and the batch and the Update of each update."""
        trainer, made = self.trainer(), []
        update, before = trainer.algorithm.update, trainer.state.digest()

        def kept(batch: Any) -> Any:
            made.append((batch, update(batch)))
            return made[-1][1]

        trainer.algorithm.update = kept
        for _ in range(segments):
            version = self.pool.version("main") or 0
            self.sampler.load(trainer.state.policy.state_dict(), version, trainer.algorithm.behaviour())
            assert trainer.learn([self.payload()]) == [None]
        assert type(trainer._source.buffer) is OwnBuffer and trainer.state.digest() != before
        assert trainer.progress.updates == len(made) > 40
        shape = trainer.algorithm.needs.length, 8 * trainer._source.buffer.together
        assert all(batch[0].terminated.shape == shape for batch, _ in made)
        assert all(np.isfinite(value) for _, update in made for value in update.metrics.values())
        return trainer, made


@pytest.mark.parametrize("name", ALGORITHMS)
def test_each_algorithm_learns_from_the_examples_newest_steps(name: str, tmp_path: Path) -> None:
    evenly = () if name == "impala" else ("algorithm.prioritized=false",)
    trainer, made = AlgorithmRun(tmp_path, (*ALGORITHMS[name], *evenly), "combined.py", newest=3, among=64).learn(30)
    first = 3 * trainer._source.buffer.together
    played = np.concatenate([batch[0].version[:first] for batch, _ in made[-10:]])
    assert played.min() > trainer.progress.version - 30, "the first of each draw are of the last weights"


@pytest.mark.parametrize("name", [name for name in ALGORITHMS if name != "impala"])
def test_each_algorithm_learns_from_the_example_by_ranks(name: str, tmp_path: Path) -> None:
    run = AlgorithmRun(tmp_path, (*ALGORITHMS[name], "algorithm.prioritized=true"), "ranked.py", sort_every=2)
    trainer, made = run.learn(30)
    buffer = trainer._source.buffer.theirs
    assert len(np.unique(buffer.tree.priorities)) > 10, "the priorities are errors by now"
    weights = np.concatenate([batch.weights for batch, _ in made])
    assert weights.max() == 1 and len(np.unique(weights)) > 10
