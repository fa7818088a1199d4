"""A deployed policy: the gateway's Actor and ports, and a backend, verified first, that decides for it."""

from __future__ import annotations

import json
import logging
import signal
import threading
from pathlib import Path
from typing import Any

import torch

from agents import checkpoints
from envs.one_agent import gamecore_actors
from envs.rewards import Rewards
from tasks.worker.celery_worker import log_to_stderr
from warren import stop_signals
from warren.environment import secret
from warren.errors import ConfigurationError, WarrenError
from workers.config.schema import GatewayConfig
from workers.deployment.json_actor import json_actor
from workers.deployment.player import DeployedPlayer
from workers.deployment.processes import Processes
from workers.deployment.settings import DeployConfig
from workers.gateway.actor import Actor
from workers.gateway.front import own_address, own_port, warn_of_redirects
from workers.gateway.limits import TOKEN, Limits
from workers.gateway.metrics import alone
from workers.gateway.server import Server, listen, opener
from workers.gateway.sessions import Sessions
from workers.models.backends import build_backend
from workers.models.verifying import Verdict, observations_of, verify
from workers.runtime.garbage import spare_loaded
from workers.runtime.trained import Trained, load, numbered, run_in, version_of

logger = logging.getLogger(__name__)

LOOK = 1.0  # s between looks whether the server still serves


class Deployment:
    """Serve from `start` to `close`; the first version is verified before any game can connect."""

    def __init__(self, config: DeployConfig, neighbours: Processes | None = None) -> None:
        """`neighbours`: the processes that share its port. Raises ConfigurationError or CheckpointError, also for a
        backend that is refused."""
        self.config, self.folder = config, run_in(Path(config.run))
        if neighbours is None:  # a shared port is never free, and the check might take another process's connection
            _check_ports(config.gateway)
        self.refused, self._last_refused = 0, -1  # newer versions that were not served
        self._damaged: set[Path] = set()  # newer checkpoints that cannot be read
        self.verdict: Verdict | None = None
        trained = load(self.folder, config.player, config.version)
        self._checkpoints = trained.source.parent
        rewards = Rewards() if trained.settings is None else trained.settings.rewards()
        self.player = DeployedPlayer(rewards, config.mode, config.seed)
        try:
            self._put_in_service(trained)
            actor, kwargs = self._actor(trained)
            gateway = config.gateway
            limits = Limits.of(gateway)
            sessions = Sessions(
                opener(actor, kwargs, self.player, rewards, limits),
                limits,
                secret(TOKEN),
                ready=lambda: self.player.ready,
                elsewhere=neighbours,
            )
            self.server = Server(
                sessions,
                gateway.address,
                gateway.port,
                gateway.tcp_port,
                shared=neighbours is not None,
                own_port=0 if neighbours is None else own_port(gateway, neighbours.number),
                facts=self.facts,
                gather=alone if neighbours is None else neighbours.gather,
            )
            self.address = own_address(gateway, self.server)
            self._neighbours = neighbours
            if neighbours is not None:
                neighbours.enter(self.address)
                warn_of_redirects(gateway)
        except BaseException:
            self.player.close()
            raise

    def start(self) -> None:
        """Begin to serve."""
        self.server.start()

    def close(self, drain: float = 0.0) -> None:
        """Stop serving; open sessions have `drain` s to end."""
        self.server.stop(drain)
        if self._neighbours is not None:
            self._neighbours.leave()
        self.player.close()

    def look(self) -> bool:
        """Serve a newer checkpoint from now on; return whether that was done. Count one that cannot be served."""
        player = self.player
        self._tell_of_damage()
        newest = checkpoints.latest(self._checkpoints)
        version = -1 if newest is None else version_of(newest)
        if version <= max(player.version, self._last_refused):
            return False
        try:
            self._put_in_service(load(self.folder, self.config.player, version))
        except Exception as error:  # such as ONNX Runtime's: none may end the service of the version before
            if newest is None or not newest.is_file():
                return False  # the learner has removed the checkpoint meanwhile
            self.refused, self._last_refused = self.refused + 1, version
            why = str(error) if isinstance(error, WarrenError) else f"{type(error).__name__}: {error}"
            logger.error(
                "version %d goes on, version %d is not served: %s", player.version, version, why,
                exc_info=not isinstance(error, WarrenError),
            )  # fmt: skip
            return False
        return True

    def _tell_of_damage(self) -> None:
        """Log, once each, the newer checkpoints that are skipped because they cannot be read."""
        whole = {path.stem for path in checkpoints.readable(self._checkpoints)}
        newer = {path for path in numbered(self._checkpoints) if version_of(path) > self.player.version}
        damaged = {path for path in newer if path.stem not in whole and path.is_file()}
        for path in sorted(damaged - self._damaged):
            logger.warning("version %d goes on: checkpoint %s is damaged, and passed over", self.player.version, path)
        self._damaged = damaged

    def facts(self) -> dict[str, Any]:
        """Return the facts that GET answers with, beside those about the sessions."""
        player, verdict = self.player, self.verdict
        return {
            "run": str(self.folder),
            "address": self.address,
            "player": self.config.player,
            "version": player.version,
            "backend": self.config.backend,
            "agreement": None if verdict is None else verdict.agreement,
            "verified_on": None if verdict is None else verdict.processor,
            "decisions": player.decisions,
            "passes": player.passes,
            "seconds_in_passes": round(player.seconds, 3),
            "episodes": player.episodes,
            "mean_return": player.mean_return,
            "refused_versions": self.refused,
        }

    def _put_in_service(self, trained: Trained) -> None:
        config = self.config
        backend = build_backend(config.backend, trained.policy.requires_grad_(False), config.threads)
        if config.backend != "pytorch":
            verdict = verify(backend, observations_of(trained, config.recorded), config.mode, config.seed)
            logger.info("version %d: %s", trained.version, verdict)
            verdict.check(config.agreement)
            self.verdict = verdict
        self.player.swap(backend, trained.version)
        logger.info("version %d of %s is in service, by %s", trained.version, self.folder, config.backend)

    def _actor(self, trained: Trained) -> tuple[type[Actor], dict[str, Any]]:
        """Return (the class that answers games, its constructor's arguments)."""
        policy, name = trained.policy, self.config.actor
        if name is None and gamecore_actors.is_gamecore(trained.env_id):
            name = trained.env_id.partition(":")[2]
        if name is None:
            return json_actor(policy), dict(self.config.kwargs)
        actor: type[Actor] = gamecore_actors.find(name)
        for kind in ("observation_space", "action_space"):
            fitting = [getattr(policy, kind)]
            if kind == "observation_space":  # the class of the training gives privileged parts, too
                fitting.append(policy.learning_space)
            if getattr(actor, kind) not in fitting:
                raise ConfigurationError(
                    f"actor={name}: its {kind} is {getattr(actor, kind)}, and the policy was trained on "
                    f"{getattr(policy, kind)}"
                )
        of_run = trained.env_kwargs if gamecore_actors.is_gamecore(trained.env_id) else {}
        return actor, {**of_run, **self.config.kwargs}


def _check_ports(gateway: GatewayConfig) -> None:
    """Raise ConfigurationError for a port that is taken: before the model is loaded and verified, not after."""
    for name, port in (("port", gateway.port), ("tcp_port", gateway.tcp_port)):
        if port:
            listen(f"gateway.{name}", gateway.address, port, False).close()


def run(config: DeployConfig) -> int:
    """Serve until told to stop, after printing the ports as a line of JSON; return exit status 0, 1 after a failure."""
    return serve(config, threading.Event())


def serve(config: DeployConfig, stopping: threading.Event, neighbours: Processes | None = None) -> int:
    """Serve as `run` does, or until `stopping` is set; with `neighbours`, behind a port that they share."""
    log_to_stderr(config.log_level)
    torch.set_num_threads(config.threads)
    hurried = threading.Event()
    deployment: Deployment | None = None

    def told(number: int) -> None:
        stopping.set()
        if number == signal.SIGINT:  # Ctrl-C, by a person who waits
            hurried.set()
            if deployment is not None:
                deployment.server.hurry()

    stop_signals.hear(told)
    deployment = Deployment(config, neighbours)
    spare_loaded()
    deployment.start()
    server = deployment.server
    try:
        said = {"port": server.port, "tcp_port": server.tcp_port, "version": deployment.player.version}
        print(json.dumps(said), flush=True)
        while not stopping.wait(config.follow or LOOK) and server.failure is None:
            if config.follow is not None:
                deployment.look()
    finally:
        deployment.close(0.0 if hurried.is_set() else config.gateway.drain)
    return 0 if server.failure is None else 1
