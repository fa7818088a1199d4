"""The evaluator of a run without a league: plays whole episodes by its newest weights, beside training.

Each time that `evaluation.every` more steps were learned from, it takes the newest weights out of the pool and plays
`evaluation.episodes` episodes by their likeliest actions, from the same seeds. The learner never waits for it: versions
that come while it plays are not evaluated. Each result is a line of evaluation.jsonl, and an event for the launcher.
"""

from __future__ import annotations

import logging
import threading
import time
import zlib
from typing import Any

import redis

import envs
from agents import build_policy, checkpoints
from agents.checkpoints import load_weights, weights_from_bytes
from league.matchmaking.view import ModelRef
from league.models.model import Model
from tasks.events import EVALUATION
from warren.errors import BrokerError, ConfigurationError, WarrenError
from workers.config import roles
from workers.config.run_names import BEST, run_folder
from workers.config.schema import Config
from workers.evaluation.episodes import Episodes, Interrupted
from workers.learning import curve
from workers.learning.metrics import EVALUATIONS, MetricsLog, read_metrics
from workers.runtime.role import RoleProcess, enter, live
from workers.runtime.run_status import CLOSED
from workers.runtime.session import PLAYER, Session

logger = logging.getLogger(__name__)

POLL = 0.25  # s between looks at the pool's newest version
AGAIN_AFTER = 1.0  # s after which work goes on when a server was away
LAST_WITHIN = 10.0  # s that the evaluation of the last weights may take, after training has ended


class PlainEvaluator(RoleProcess):
    """Evaluations of one run, by steps."""

    over_at = (CLOSED,)  # the learner's last weights are evaluated too

    def __init__(self, config: Config, session: Session, stopping: threading.Event | None = None) -> None:
        super().__init__(stopping)
        if config.evaluator_id:
            raise ConfigurationError(
                f"evaluator_id: {config.evaluator_id} would evaluate what number 0 does; a run without a league has one"
            )
        self.config, self.folder = config, run_folder(config)
        self._pool, self._events = session.pool, session.events
        settings = config.env.settings()
        self.policy = build_policy(config.network, *envs.spaces(settings), config.seed, settings.value_channels)
        seed = zlib.crc32(f"evaluation {config.seed}".encode()) % (1 << 31)
        self._episodes = Episodes(settings, config.evaluation.episodes, config.env.num_envs, seed)
        self._log: MetricsLog | None = None
        self._steps = 0  # steps of the weights that were evaluated last
        self._version = -1
        self._best = float("-inf")
        self._until = float("inf")

    def work(self, name: str) -> int:
        """Evaluate until told to stop, and then the last weights."""
        while not self.stopping.is_set():
            try:
                if not self.step():
                    self.stopping.wait(POLL)
            except Interrupted:
                break
            except (redis.RedisError, OSError) as error:
                logger.warning("cannot evaluate for a moment: %s", error)
                self.stopping.wait(AGAIN_AFTER)
        try:
            self.step(last=True)
        except (redis.RedisError, OSError, WarrenError) as error:
            logger.warning("the last weights were not evaluated: %s", error)
        return 0

    def leave(self) -> None:
        super().leave()
        self._episodes.close()
        if self._log is not None:
            self._log.close()
            try:
                curve.draw(self.folder, self.config)
            except OSError as error:
                logger.warning("no learning curve: %s", error)

    def step(self, last: bool = False) -> bool:
        """Evaluate the newest weights if that is due, or if they are the `last`; return whether that was done."""
        every = self.config.evaluation.every
        assert every is not None
        version = self._pool.version(PLAYER)
        if version is None or version == self._version:
            return False
        if self._log is None:
            self._begin(version)
        info = self._pool.info(ModelRef(PLAYER, version))
        due = info is not None and (info.step // every > self._steps // every or (last and info.step > self._steps))
        model = self._pool.newest(PLAYER) if due else None
        if model is None:
            return False
        self._evaluate(model)
        return True

    def _begin(self, version: int) -> None:
        """Continue after the evaluations of an earlier part of the run; drop those of weights that were lost."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._log = MetricsLog(self.folder, version, EVALUATIONS)
        points = read_metrics(self.folder, EVALUATIONS)
        self._steps = points[-1]["steps"] if points else 0
        if (self.folder / BEST).is_dir():
            self._best = max((point["mean_return"] for point in points), default=self._best)

    def _evaluate(self, model: Model) -> None:
        tensors, stamp = weights_from_bytes(model.data)
        load_weights(self.policy, tensors, f"version {model.version}")
        began = time.monotonic()
        played = self._episodes.play(self.policy, self._is_late)
        returns, lengths, *others = played.T
        point: dict[str, Any] = {
            "steps": model.step,
            "version": model.version,
            "episodes": len(returns),
            "mean_return": float(returns.mean()),
            "deviation": float(returns.std()),
            "least": float(returns.min()),
            "most": float(returns.max()),
            "mean_length": float(lengths.mean()),
            "seconds": time.monotonic() - began,
        }
        names = self.config.env.settings().figures
        point |= {name: float(values.mean()) for name, values in zip(names, others, strict=True)}
        self._steps, self._version = model.step, model.version
        logger.info("%s", point)
        if self.config.evaluation.keep_best and point["mean_return"] > self._best:
            moment = checkpoints.Moment.of_weights(tensors, {**stamp, "evaluation": point})
            checkpoints.write(self.folder / BEST, f"{model.version:08d}", moment, keep=1)
            self._best = point["mean_return"]
        assert self._log is not None
        self._log.write(point, {})
        try:
            self._events.fire(EVALUATION, point)
        except BrokerError as error:
            logger.warning("%s", error)

    def _is_late(self) -> bool:
        """Return whether an evaluation has to be given up because training ended a while ago."""
        if self.stopping.is_set():
            self._until = min(self._until, time.monotonic() + LAST_WITHIN)
        return time.monotonic() > self._until


def run(config: Config) -> int:
    """Evaluate until told to stop, or until the run is over; return exit status 0."""
    session = enter(config, roles.EVALUATOR, torch_threads=1)
    stopping = session.stopped_by_signals()
    return live(session, roles.EVALUATOR, lambda numbered: PlainEvaluator(numbered, session, stopping), stopping)
