"""From a configuration to what its launcher runs: a training run, or a league."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from envs import is_gamecore
from workers.config import hosts
from workers.config.schema import Config, Sampling, to_yaml
from workers.launch.spec import Done, ProcessSpec, Restart, RunSpec, ServersSpec
from workers.servers.forks import ENVIRONMENT

LAST_PICTURES = 30.0  # s that an evaluator has for the last score and pictures; on a quiet machine they take 3
# A role reads the run folder's configuration: Hydra must add no folder and no log of its own there either.
HYDRA_QUIET = ("hydra.run.dir=.", "hydra.output_subdir=null", "hydra/job_logging=none", "hydra/hydra_logging=none")


def training(config: Config, folder: Path) -> RunSpec:
    """A learner, actors or gateways, env runners where actors are served, and Flower where it is wanted."""
    learner = _role(config, folder, "learner", done=Done.run, single=True)
    plays = "gateway" if is_gamecore(config.env.id) else "actor"
    actors = (*_counted(config, folder, plays, "actors", number="actor_id"), *_env_runners(config, folder))
    processes = (learner, *_ranks_beside(config, learner, config.player), *actors, *_flower(config, folder))
    title = f"{config.project}/{config.trial}: {config.env.id}, {config.algorithm['name']}, {config.sampling.value}"
    return _run(config, folder, "training", title, processes)


def league(config: Config, folder: Path) -> RunSpec:
    """League workers, a learner for each player, actors, env runners where they are served, evaluators, and Flower."""
    assert config.league is not None
    processes = (
        *_counted(config, folder, "league", "league_workers", stop_order=1),
        *_counted(config, folder, "actor", "actors"),
        *_env_runners(config, folder),
        *_evaluators(config, folder),
        *(learner for player in config.league["players"] for learner in learners_of(config, folder, player)),
        *_flower(config, folder),
    )
    title = f"{config.project}/{config.trial}: {config.league['env']}, a league of {len(config.league['players'])}"
    return _run(config, folder, "league", title, processes)


def compiled(config: Config, folder: Path) -> RunSpec:
    """The one that the configuration is of."""
    return training(config, folder) if config.league is None else league(config, folder)


def may_fork(config: Config) -> bool:
    """Whether its processes may be forked: CUDA cannot be used in the child of what has asked for it, as imports do."""
    return config.fork and config.device == config.actor_device == "cpu"


def learners_of(config: Config, folder: Path, player: str, added: bool = False) -> tuple[ProcessSpec, ...]:
    """The learners of one player. `added`: by a person while the run lasts, which goes on should those fail."""
    # In quotes: Hydra would take 1e3 for a number and null for nothing.
    spec = _role(config, folder, "learner", f"player='{player}'", done=Done.once, single=True)
    first = replace(spec, role=f"learner-{player}", restart=Restart.optional if added else Restart.critical)
    return (first, *_ranks_beside(config, first, player))


def _ranks_beside(config: Config, learner: ProcessSpec, player: str) -> tuple[ProcessSpec, ...]:
    """The other learners of the same player, where there are several. The first is started again in any case."""
    config = replace(config, learners=config.learners_of(player))
    if config.learners == 1:
        return ()
    restart = learner.restart if config.on_rank_loss == "restart" else Restart.never
    numbered = ("learner_id={rank}",)
    here = hosts.ranks(config, "learners", config.host)
    ranks = range(max(1, here.start), here.stop)
    beside = replace(learner, ranks=ranks, numbered=numbered, single=False, done=Done.once, restart=restart)
    return (replace(beside, anywhere=True),)


def _run(config: Config, folder: Path, kind: str, title: str, processes: tuple[ProcessSpec, ...]) -> RunSpec:
    assert config.run is not None
    leads = hosts.leads(config)
    if not leads:  # what needs the run's folder, or is one of a kind, is the leader's
        processes = tuple(spec for spec in processes if spec.setting is not None or spec.anywhere)
    return RunSpec(
        kind=kind,
        run=config.run,
        title=title if leads else f"{title}, on {config.host}",
        folder=folder,
        files={"config.yaml": to_yaml(config)},
        processes=tuple(spec for spec in processes if len(spec.ranks) or (leads and spec.setting)),
        servers=ServersSpec(config.broker.mode if leads else "external", config.broker.url, config.broker.redis_url),
        restarts=config.restarts,
        host=config.host or hosts.leader(config),
        leads=leads,
        hosts=tuple(config.hosts),
        join_command=f"python -m workers.train run={config.run} host={{host}}",
        card={"kind": kind, "config": to_yaml(replace(config, host=None)), "folder": str(folder.resolve())},
        sweep=bool(config.hosts),
    )


def _counted(
    config: Config, folder: Path, role: str, setting: str, number: str | None = None, **more: Any
) -> tuple[ProcessSpec, ...]:
    spec = _role(config, folder, role, ranks=hosts.ranks(config, setting, config.host), **more)
    numbered = (f"{number or f'{role}_id'}={{rank}}",)
    return (replace(spec, numbered=numbered, setting=setting, num=hosts.total(config, setting)),)


def _evaluators(config: Config, folder: Path) -> tuple[ProcessSpec, ...]:
    """Each has the time for its last act at least: a score, and the pictures."""
    specs = _counted(config, folder, "evaluator", "evaluators", stop_order=1, restart=Restart.optional)
    return tuple(replace(spec, grace=max(spec.grace, LAST_PICTURES)) for spec in specs)


def _env_runners(config: Config, folder: Path) -> tuple[ProcessSpec, ...]:
    """Where actors are served."""
    if config.sampling is not Sampling.served:
        return ()
    return _counted(config, folder, "env", "env_runners", number="env_runner_id")


def _flower(config: Config, folder: Path) -> tuple[ProcessSpec, ...]:
    if config.flower_port is None:
        return ()
    return (replace(_role(config, folder, "flower", single=True, restart=Restart.optional), forked=False),)


def _role(
    config: Config, folder: Path, role: str, *overrides: str, ranks: range = range(1), **more: Any
) -> ProcessSpec:
    command = (
        *("-m", f"workers.{role}"),
        *("--config-dir", str(folder.resolve()), "--config-name", "config"),
        *HYDRA_QUIET,
        *overrides,
    )
    environment = {**ENVIRONMENT, "PYTHONUNBUFFERED": "1"}
    forked = may_fork(config)
    return ProcessSpec(role, ranks, command, environment=environment, grace=config.grace, forked=forked, **more)
