"""Learners with falling schedules, as processes: `python learners_of_processes.py REDIS_URL PREFIX LEARNER FOLDER`.

Each learns from its share of the same segments, pushes a line to PREFIX:seen:LEARNER after each update, and its weights
to PREFIX:weights:LEARNER at the end. The last learner leaves after some updates, once PREFIX:leave is set; the others
end once PREFIX:end is set.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import redis
import torch

from agents import Trajectory
from agents.checkpoints import weights_to_bytes
from workers.config.schema import Config, EnvConfig
from workers.learning.allreduce import membership
from workers.learning.allreduce.ranks import Ranks
from workers.learning.plain import plain_trainer

sys.path.insert(0, str(Path(__file__).parents[1]))
from support.learner_run import CARTPOLE, Run

SHARES = (1, 2, 1)  # segments of each learner in each update
UPDATES, LEFT_AFTER = 6, 3  # the last learner takes part in the first three
STEPS, ENVS = 16, 2
SETTINGS = {
    **{"name": "ppo", "epochs": 2, "minibatch_size": 1_000_000, "learning_rate": 0.01, "anneal_steps": 1_000},
    **{"anneal_to": 0.1, "entropy_coefficient": 0.05, "entropy_decay_steps": 100},
}


def segment(run: Run, update: int, place: int, version: int) -> dict[str, Any]:
    """Return payload `place` of `update`, equal in every process."""
    generator = np.random.default_rng((update, place))
    shape = (STEPS, ENVS)
    made = run.sampler.collect(STEPS)
    trajectory = Trajectory(
        observation=generator.normal(size=(*shape, 4)).astype(np.float32),
        action=generator.integers(2, size=shape),
        reward=generator.normal(size=shape).astype(np.float32),
        terminated=generator.random(shape) < 0.1,
        truncated=np.zeros(shape, np.bool_),
        extras={name: generator.normal(-0.7, 0.01, size=shape).astype(np.float32) for name in ("log_prob", "value")},
        last={**made.last, "value": np.zeros(ENVS, np.float32)},
        cut=made.cut,
        version=np.full(ENVS, version),
        episodes=np.zeros((0, 2), np.float32),
    )
    trajectory.last["observation"] = np.zeros((ENVS, 4), np.float32)
    sent = {"source": "a", "number": len(SHARES) * update + place, "steps": STEPS * ENVS}
    return {**sent, "first_step_at": 0.0, "collected_at": 0.0, "trajectory": trajectory.to_dict()}


def places(learner: int) -> range:
    """Return the indices of `learner`'s segments in each update."""
    return range(sum(SHARES[:learner]), sum(SHARES[: learner + 1]))


def trainer_of(run: Run, folder: Path, ranks: Ranks | None = None) -> Any:
    """Return a trainer with the settings above."""
    run.session.config = Config(
        trial="t", run="r", env=EnvConfig(id=CARTPOLE, num_envs=ENVS), algorithm=SETTINGS, learners=len(SHARES)
    )
    return plain_trainer(run.session, folder, lambda: None, ranks)


def figures(trainer: Any) -> dict[str, float]:
    """Return the state of the schedules."""
    algorithm, progress = trainer.algorithm, trainer.progress
    return {
        "steps": progress.steps,
        "clock": algorithm.steps,
        "rate": algorithm.descent.optimizer.learning_rate,
        "entropy": algorithm.entropy_coefficient,
    }


def wait_for(client: Any, key: str) -> None:
    """Wait until the key is set."""
    while not client.exists(key):
        time.sleep(0.05)


def main(url: str, prefix: str, learner: str, folder: str) -> None:
    logging.basicConfig(level=logging.INFO)
    torch.set_num_threads(1)
    membership.SILENT = 120.0  # a learner on a busy machine must not count as dead
    me, client = int(learner), redis.Redis.from_url(url)
    here = Path(folder) / learner
    here.mkdir(parents=True)
    run = Run(here)
    ranks = Ranks(client, prefix, me, len(SHARES), "torch", client.connection_pool.connection_kwargs["host"])
    trainer = trainer_of(run, here, ranks)
    trainer.join()
    for update in range(UPDATES):
        payloads = [segment(run, update, place, trainer.progress.version) for place in places(me)]
        assert trainer.learn([payloads]) == [None]
        client.rpush(f"{prefix}:seen:{me}", json.dumps(figures(trainer)))
        if me == len(SHARES) - 1 and update + 1 == LEFT_AFTER:
            wait_for(client, f"{prefix}:leave")  # until the others have made this update too
            ranks.leave()
            return
    client.rpush(f"{prefix}:weights:{me}", weights_to_bytes(trainer.state.policy, {}))
    wait_for(client, f"{prefix}:end")  # leaving before the others are done would interrupt their last update
    ranks.leave()


if __name__ == "__main__":
    main(*sys.argv[1:])
