"""Settings of `python -m workers.deploy`, `export` and `clone`, as name=value on their command lines."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, TypeVar

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from warren.errors import ConfigurationError, unknown_name
from workers.config.command_line import guarded
from workers.config.gateway_checks import missing_packages, wrong_values
from workers.config.schema import GatewayConfig
from workers.deployment.backends import BACKENDS
from workers.deployment.exporting import missing
from workers.deployment.verifying import AGREEMENT

MODES = ("sample", "greedy")
T = TypeVar("T")


@dataclass
class ExportConfig:
    """Settings of an export: a policy, and how its model is made and checked."""

    run: str  # a run folder, or a folder of runs, whose newest it is
    player: str = "main"  # of a league's; or a frozen one: main@1200
    version: int | None = None  # of the weights, among the run's checkpoints; null: the newest
    int8: bool = False  # weights of a byte each
    agreement: float = AGREEMENT  # share of recorded observations on which the model has to act as PyTorch does
    recorded: str | None = None  # the file of those observations; null: what the run's learner wrote, or a game played


@dataclass
class DeployConfig:
    """Settings of a deployment: a policy, how it decides, and where games reach it."""

    run: str  # a run folder, or a folder of runs, whose newest it is
    player: str = "main"  # of a league's; or a frozen one: main@1200
    version: int | None = None  # of the weights, among the run's checkpoints; null: the newest
    follow: float | None = None  # s between looks for a newer checkpoint, which then plays on; null: none is looked for
    actor: str | None = None  # FILE.py:CLASS; null: the run's own, or JSON where the run has none (json_actor.py)
    kwargs: dict[str, Any] = field(default_factory=dict)  # of the actor's constructor, beside the run's env.kwargs
    backend: str = "pytorch"  # pytorch, onnx (ONNX Runtime) or int8, on the CPU
    agreement: float = AGREEMENT  # share of recorded observations on which a backend has to act as PyTorch does
    recorded: str | None = None  # the file of those observations; null: what the run's learner wrote, or a game played
    mode: str = "sample"  # sample: draw actions, as in training; greedy: the likeliest
    seed: int = 0  # of the actions that are drawn
    threads: int = 1  # of a forward pass
    processes: int = 1  # that serve behind one port (several.py)
    log_level: str = "info"
    gateway: GatewayConfig = field(default_factory=GatewayConfig)  # as in training; gateway.port=8000

    def __post_init__(self) -> None:
        problems = []
        if self.mode not in MODES:
            problems.append(unknown_name("mode", self.mode, MODES))
        if self.follow is not None and self.follow <= 0:
            problems.append(f"follow={self.follow} must be above 0 s, or null")
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


def command(doc: str | None, config: type[T], run: Callable[[T], int]) -> int:
    """Return the exit status of `run` with the settings of the command line; print `doc` where help is asked for."""
    given = sys.argv[1:]
    if not given or "--help" in given or "-h" in given:
        print(doc)
        return 0 if given else 2
    return guarded(lambda: run(parse(config, given)))


def parse(config: type[T], given: Sequence[str]) -> T:
    """Return the settings that a command line gives, as a `config`. Raises ConfigurationError with all problems."""
    known = _names(config)
    wrong = [f"{one}: is no setting; write them as name=value" for one in given if "=" not in one]
    wrong += [
        unknown_name("setting", name, known)
        for name in (one.partition("=")[0] for one in given if "=" in one)
        if name not in known and not ("kwargs" in known and name.startswith("kwargs."))
    ]
    if not wrong and not any(one.startswith("run=") for one in given):
        wrong.append("run: not given; name a run folder, as in run=runs/cartpole/TRIAL")
    if wrong:
        raise ConfigurationError(wrong)
    try:
        merged = OmegaConf.merge(OmegaConf.structured(config), OmegaConf.from_dotlist(list(given)))
        made = OmegaConf.to_object(merged)
    except (OmegaConfBaseException, YAMLError) as error:
        key = getattr(error, "full_key", None) or "settings"
        raise ConfigurationError(f"{key}: {str(error).splitlines()[0]}") from None
    assert isinstance(made, config)
    return made


def _names(of: Any, prefix: str = "") -> list[str]:
    names = []
    for one in fields(of):
        names.append(f"{prefix}{one.name}")
        if is_dataclass(one.default_factory):
            names += _names(one.default_factory, f"{prefix}{one.name}.")
    return names
