"""The specification of a training run or a league, compiled from its configuration."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from workers.config import hosts
from workers.config.roles import LEARNER, Done, Restart, Role
from workers.config.schema import Config, to_yaml
from workers.launch.spec import ProcessSpec, RunSpec, ServersSpec
from workers.servers.forks import ENVIRONMENT

# A role reads the run folder's configuration; Hydra must not write a folder or a log there.


def compiled(config: Config, folder: Path) -> RunSpec:
    """Return the specification for this host's launcher, with this host's processes of each role of the run."""
    assert config.run is not None
    leads = hosts.leads(config)
    processes: list[ProcessSpec] = []
    for role, player, ranks in hosts.shares(config):
        if role is LEARNER:
            processes += _learners(config, folder, player, ranks)
        else:
            processes.append(_spec(config, folder, role, ranks))
    kind = "training" if config.league is None else "league"
    title = f"{config.project}/{config.trial}: {_title(config)}"
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
        metrics=None if config.metrics.port is None else (config.metrics.address, config.metrics.port),
    )


def _title(config: Config) -> str:
    if config.league is not None:
        return f"{config.league['env']}, a league of {len(config.league['players'])}"
    return f"{config.env.id}, {config.algorithm['name']}, {config.sampling.value}"


def may_fork(config: Config) -> bool:
    """Return whether the run's processes may be forked: CUDA fails in children of a process that has queried it."""
    return config.fork and config.device == config.actor_device == "cpu"


def learner_name(player: str) -> str:
    """Return the process name of the first learner of a league's player."""
    return f"{LEARNER.name}-{player}"


def added_learners(config: Config, folder: Path, player: str) -> list[ProcessSpec]:
    """Return the learners of a player that is added while the run lasts; the run goes on if they fail."""
    found = _learners(config, folder, player, hosts.share(config, LEARNER, player), Restart.optional)
    return [one for one in found if len(one.ranks)]


def _learners(
    config: Config, folder: Path, player: str | None, ranks: range, restart: Restart = LEARNER.restart
) -> list[ProcessSpec]:
    """Return two specs: the first learner, which is always restarted, and the other learners of the same player."""
    if player is None:
        spec = _spec(config, folder, LEARNER, range(0))
    else:  # in quotes: Hydra would read 1e3 as a number and null as None
        spec = _spec(config, folder, LEARNER, range(0), f"player='{player}'")
        spec = replace(spec, role=learner_name(player), done=Done.once)
    again = restart if config.on_rank_loss == "restart" else Restart.never
    beside = replace(spec, ranks=range(max(1, ranks.start), ranks.stop), done=Done.once, restart=again)
    return [replace(spec, ranks=range(int(0 in ranks)), numbered=(), single=True, restart=restart), beside]


def _spec(config: Config, folder: Path, role: Role, ranks: range, *overrides: str) -> ProcessSpec:
    command = (
        *("-m", f"workers.{role.name}"),
        *("--config-dir", str(folder.resolve()), "--config-name", "config"),
        *overrides,
    )
    scaled = role.count if role.scaled else None
    return ProcessSpec(
        role.name,
        ranks,
        command,
        numbered=() if role.id is None else (f"{role.id}={{rank}}",),
        environment={**ENVIRONMENT, "PYTHONUNBUFFERED": "1"},
        restart=role.restart,
        done=role.done,
        stop_order=role.stop_order,
        grace=max(config.grace, role.grace),
        longest=role.longest,
        setting=scaled,
        single=role.count is None,
        num=None if scaled is None else hosts.total(config, scaled),
        forked=role.forked and may_fork(config),
        answers=role.answers,
        rights=role.rights_in(config),
    )
