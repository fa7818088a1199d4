"""The learner of a plain run: trains one player on the segments that arrive, and publishes each new version."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path

import torch

from agents.trajectories import requested
from tasks.worker.pool import stop_worker
from warren.files import write_whole
from warren.log_fields import tell
from workers.config import roles
from workers.config.run_names import run_folder
from workers.config.schema import Config, to_yaml
from workers.learning.allreduce.ranks import Ranks
from workers.learning.learner_role import LearnerRole
from workers.learning.place import lease_of, name_of, ranks_of
from workers.learning.plain import plain_trainer
from workers.learning.trainer import Trainer
from workers.runtime import run_settings
from workers.runtime.facts import publish_run_facts
from workers.runtime.freed_memory import keep_freed_memory
from workers.runtime.metrics_endpoint import served
from workers.runtime.role import enter
from workers.runtime.run_status import Ending, verdict
from workers.runtime.session import PLAYER, Session

logger = logging.getLogger(__name__)


class PlainLearnerRole(LearnerRole):
    """The learner of a plain run, which ends at its goal, or at its last step."""

    def __init__(self, config: Config, session: Session, trainer: Trainer) -> None:
        super().__init__(config, session, trainer)
        self._ending = Ending(session.redis, session.topology.key_prefix)

    def work(self) -> int:
        folder, progress = run_folder(self.config), self.trainer.progress
        if state := verdict(self.config, progress.steps, progress.mean_return):
            logger.info(
                "%s is %s already; for more, raise env.goal or total_steps, or start another run", folder, state
            )
            self.trainer.finish(state)
            return 0
        self._ending.clear()
        return self.consume("learner")

    def end(self) -> None:
        super().end()
        if self.trainer.outcome is not None and self.trainer.leads:
            self._ending.record(self.trainer.progress.steps, self.trainer.progress.mean_return)

    def log_end(self) -> None:
        state = "stopped" if self.trainer.outcome is None else self.trainer.outcome["state"]
        logger.info("%s: %s; run folder %s", state, self.figures(), run_folder(self.config))


def train(config: Config, session: Session, player: str, make: Callable[[Ranks | None], LearnerRole]) -> int:
    """Train `player` for as long as it learns, or until a stop; return exit status 0, or 1 when that failed.

    `make` is given the ranks that train the player together, once this process holds the lease of its learner. Raises
    ConfigurationError for faults that the user has to correct: an environment that keeps failing, a second learner.
    """
    keep_freed_memory()
    session.declare()
    lease = lease_of(session, player)
    lease.take(threading.Event(), "a player has one learner")
    publish_run_facts(session, lease)
    run_settings.leave(session, lease)
    learner = make(ranks_of(config, session, player))
    publish_run_facts(session, lease, requested(learner.trainer.algorithm.needs.fields))
    lease.hold(learner.ended, learner.give_up)
    try:
        name = name_of(config, "learner" if config.league is None else f"learner-{player}")
        tell(process=name, player=player, version=learner.trainer.progress.version)
        with served(config, roles.LEARNER.name, name, learner.trainer.outlets.samples, session.app):
            status = learner.work()
    finally:
        learner.end()
        learner.trainer.close()
        lease.release()
        learner.log_end()
    return learner.status(status)


def leave_configuration(folder: Path, config: Config) -> None:
    """Write config.yaml into the run's folder, unless it is there. Raises OSError, leaving no file."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "config.yaml"
    if not path.exists():
        write_whole(path, to_yaml(config))


def run(config: Config) -> int:
    """Train until the goal, the last step, or a stop; return the exit status. Raises what `train` raises.

    In the folder of a run that is over, the learner says so, tells the other processes, and ends with status 0.
    """
    session = enter(config, roles.LEARNER, torch_threads=config.learner_threads)
    if config.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # for deterministic matrix products on a GPU
        torch.use_deterministic_algorithms(True)
    folder = run_folder(config)
    leave_configuration(folder, config)

    def make(ranks: Ranks | None) -> PlainLearnerRole:
        return PlainLearnerRole(config, session, plain_trainer(session, folder, stop_worker, ranks))

    return train(config, session, PLAYER, make)
