"""Settings of `python -m workers.deploy`; the comments are what --help says of each."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from warren.errors import ConfigurationError, unknown_name
from workers.config.gateway_checks import missing_packages, wrong_values
from workers.config.schema import GatewayConfig
from workers.models.backends import BACKENDS
from workers.models.exporting import missing
from workers.models.verifying import AGREEMENT, MODES


@dataclass
class DeployConfig:
    """Settings of a deployment: a policy, how it decides, and where games reach it."""

    run: str  # a run folder, or a folder of runs, whose newest is taken
    player: str = "main"  # player of a league's run; or a frozen one: main@1200
    version: int | None = None  # version of the weights, among the run's checkpoints; null: the newest
    follow: float | None = None  # s between looks for a newer checkpoint, which then takes over; null: no looks
    actor: str | None = None  # FILE.py:CLASS; null: the run's own, or JSON where the run has none (json_actor.py)
    kwargs: dict[str, Any] = field(default_factory=dict)  # arguments of the actor's constructor, beside env.kwargs
    backend: str = "pytorch"  # pytorch, onnx (ONNX Runtime) or int8, on the CPU
    agreement: float = AGREEMENT  # share of recorded observations on which a backend has to act as PyTorch does
    recorded: str | None = None  # file of those observations; null: that of the run's learner, else a game is played
    mode: str = "sample"  # sample: draw actions, as in training; greedy: the likeliest
    seed: int = 0  # seed of the actions that are drawn
    threads: int = 1  # threads of a forward pass
    processes: int = 1  # processes that serve behind one port (several.py)
    log_level: str = "info"  # debug, info, warning or error
    gateway: GatewayConfig = field(default_factory=GatewayConfig)  # like training's; gateway.port=8000

    def __post_init__(self) -> None:
        problems = []
        if self.mode not in MODES:
            problems.append(unknown_name("mode", self.mode, MODES))
        if self.follow is not None and not 0 < self.follow < math.inf:
            problems.append(f"follow={self.follow} must be above 0 s and finite, or null")
        if self.follow is not None and (self.version is not None or "@" in self.player):
            problems.append("follow: a version is chosen, which never changes; leave out one of them")
        if not 0 <= self.agreement <= 1:
            problems.append(f"agreement={self.agreement} must be between 0 and 1")
        for name in ("threads", "processes"):
            if getattr(self, name) < 1:
                problems.append(f"{name}={getattr(self, name)} must be at least 1")
        if self.backend not in BACKENDS:
            problems.append(unknown_name("backend", self.backend, BACKENDS))
        if self.backend in ("onnx", "int8"):
            problems += missing()
        problems += [*wrong_values(self.gateway), *missing_packages()]
        if problems:
            raise ConfigurationError(problems)
