"""`python -m workers.train`: a whole run of one agent or a league, on one host or several."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hydra
from hydra.core.global_hydra import GlobalHydra
from omegaconf import OmegaConf

from warren.errors import ConfigurationError
from warren.files import read_json
from workers import servers
from workers.config import hosts, plain_checks, roles
from workers.config.league_choices import with_choices
from workers.config.overrides import REFUSALS
from workers.config.resuming import changes
from workers.config.run_names import name_run, run_folder
from workers.config.saved_settings import read_tree
from workers.config.schema import BrokerConfig, Config, from_hydra
from workers.config.verifying import problems_of_building
from workers.config.written_by import check_messages
from workers.launch.folder import COUNTS, OUTCOME, RunFolder
from workers.launch.kinds.training_spec import compiled, may_fork
from workers.launch.processes.interrupts import raised
from workers.launch.spec import RunSpec, ServersSpec
from workers.runtime.connect import given_urls
from workers.servers.checks import redact
from workers.servers.forks import Forks

if TYPE_CHECKING:
    from workers.launch.host_run import Outcome
    from workers.launch.launcher import Launcher

# The modules with which a learner draws its curve at its end, which would wait for their imports.
AT_THE_END = ("matplotlib.backends.backend_agg", "matplotlib.figure")


@raised()
def run(config: Config, overrides: Sequence[str], forks: Forks | None = None) -> int:
    """Train to the end; return the exit status: 0 if solved or all steps are done, 130 after Ctrl-C, 1 after a failure.

    `overrides`: those of the command line, which change a resumed run. `forks`: forks the run's processes; it is
    loading the modules that all runs need.
    """
    if forks is not None:
        if may_fork(config):
            forks.load([str(role.module(config)) for role in roles.of(config) if role.forked])
        else:
            forks.close()
    if not hosts.leads(config):
        return _join(config, forks)
    if config.resume is not None:
        config = resumed(config, overrides)
    name_run(config)
    if not [*hosts.problems(config)]:
        config = replace(config, **hosts.given_totals(config))
    forked = forks if may_fork(config) else None
    if problems := [*plain_checks.problems(config, "train")]:
        raise ConfigurationError([*problems, *problems_of_building(config, forked)])
    with RunFolder.take(run_folder(config)) as folder, servers.begin(
        config.broker.mode, config.broker.url, config.broker.redis_url,
        folder=folder.path, lock=folder.lock, run=config.run, unsaved=unsaved_league(config),
    ) as pending:  # fmt: skip
        if problems := problems_of_building(config, forked):  # while the servers boot
            raise ConfigurationError(problems)
        if forked is not None and config.league is None:
            forked.load(AT_THE_END)  # while the servers boot
        return _lead(config, folder, pending, forks)


def unsaved_league(config: Config) -> Callable[[], bool] | None:
    """Return a test for events in Redis that the league's folder lacks; None without a league."""
    if config.league is None:
        return None
    from league.models.unsaved import Unsaved  # not needed by a run without a league
    from workers.runtime.league_paths import league_folder

    unsaved = Unsaved(league_folder(config))
    return lambda: bool(unsaved.prefixes)


def _lead(config: Config, folder: RunFolder, pending: servers.PendingServers, forks: Forks | None) -> int:
    from workers.launch.launcher import Launcher  # here as in `_join`: imported while the servers boot

    spec = compiled(config, folder.path)
    if config.league is None:
        from workers.launch.kinds import training_monitor
        from workers.ui.training_view import View

        with View(spec.title, config.env.goal, config.total_steps) as view:
            monitor = partial(training_monitor.TrainingMonitor, config, view)
            outcome = _run(Launcher(spec, folder, view, monitor, forks=forks), pending)
        return training_monitor.report_end(folder.path, folder.read(OUTCOME), outcome.status, config)
    from workers.launch.kinds import league_monitor
    from workers.ui.league_view import LeagueView

    with LeagueView(spec.title, config.league.get("goal"), config.total_steps) as league_view:
        league = partial(league_monitor.LeagueMonitor, config, league_view)
        outcome = _run(Launcher(spec, folder, league_view, league, forks=forks), pending)
    return league_monitor.report_end(folder.path, folder.read(OUTCOME), outcome.status)


def _run(launcher: Launcher, pending: servers.PendingServers) -> Outcome:
    """Run the launcher to the end and restore the signals, as another run may follow."""
    try:
        return launcher.run(pending)
    finally:
        launcher.interrupts.give_back()


def _join(config: Config, forks: Forks | None) -> int:
    """Run this host's share, as the leader gives it, of a run that another host leads; return the exit status."""
    from workers.launch.kinds.services_monitor import ShareMonitor
    from workers.launch.launcher import Launcher
    from workers.ui.run_view import RunView

    problems = list(hosts.problems(config))
    if config.run is None:
        problems.append(
            f"run: not given; name the run that host {config.host} joins (run=NAME, as its leader prints it)"
        )
    if None in given_urls(config):
        problems.append(
            "broker.url and broker.redis_url: not given; a host that joins uses the run's servers: set them, or "
            "WARREN_BROKER_URL and WARREN_REDIS_URL in the environment"
        )
    if problems:
        raise ConfigurationError(problems)
    assert config.run is not None and config.host is not None
    path = Path(config.folder) / "hosts" / f"{config.run}-{config.host}"
    title = f"{config.run} on {config.host}"
    joining = RunSpec(
        kind="training", run=config.run, title=title, folder=path, files={}, processes=(),
        servers=ServersSpec("external", config.broker.url, config.broker.redis_url), host=config.host, leads=False,
        hosts=tuple(config.hosts),
    )  # fmt: skip

    def from_card(card: dict[str, Any]) -> RunSpec:
        try:
            settings = OmegaConf.create(card["config"])
            check_messages(settings, config.run)
            led = from_hydra(settings)
        except (KeyError, ValueError, TypeError) as error:
            raise ConfigurationError(f"run: {config.run} is not a training run or a league: {error}") from None
        led = replace(led, host=config.host, grace=config.grace, log_level=config.log_level, fork=config.fork)
        led = replace(led, log_format=config.log_format, metrics=config.metrics)
        if config.host not in led.hosts:
            listed = ", ".join(led.hosts) or "none"
            raise ConfigurationError(
                f"host: {config.host!r} is not one of the run's hosts ({listed}); add it to hosts where the run is led"
            )
        return compiled(led, path)

    with RunFolder.take(path) as folder, RunView(title) as view:
        return Launcher(joining, folder, view, partial(ShareMonitor, view), from_card, forks).run().status


def resumed(config: Config, given: Sequence[str]) -> Config:
    """Return the configuration of the run folder `config.resume`, with the overrides `given` on top."""
    assert config.resume is not None
    folder = next(
        (p for p in (Path(config.resume), Path(config.folder) / config.resume) if (p / "config.yaml").exists()), None
    )
    if folder is None:
        known = sorted(str(path.parent) for path in Path(config.folder).glob("*/*/config.yaml"))
        hint = (
            f"the newest run folders are {', '.join(known[-3:])}" if known else f"there is none under {config.folder}/"
        )
        raise ConfigurationError(f"resume: {config.resume} is not a run folder (it has no config.yaml); {hint}")
    overrides, problems = changes(given)
    if problems:
        raise ConfigurationError(problems)
    read_tree(folder / "config.yaml")  # Hydra would not say which file is damaged, or take an empty one
    GlobalHydra.instance().clear()
    with hydra.initialize_config_dir(str(folder.resolve()), version_base="1.3"):
        try:
            own = from_hydra(hydra.compose("config", overrides), f"resume: {folder / 'config.yaml'}")
            saved = with_choices(own, None, overrides)
        except REFUSALS as error:  # valid for a new run, but not for this folder's configuration
            raise ConfigurationError(redact(f"resume: {' '.join(overrides)}: {error}")) from None
    root = folder.resolve().parent.parent
    return replace(
        saved,
        **scaled_counts(folder, overrides),
        broker=replace(BrokerConfig(**vars(saved.broker)), url=config.broker.url, redis_url=config.broker.redis_url),
        folder=os.path.relpath(root),
        project=folder.resolve().parent.name,
        trial=folder.resolve().name,
        run=config.run,
        resume=None,
    )


def scaled_counts(folder: Path, overrides: list[str]) -> dict[str, Any]:
    """Return the counts to which the run was scaled before it ended, except those that `overrides` give."""
    given = {override.lstrip("+~").partition("=")[0] for override in overrides}
    counts = read_json(folder / COUNTS)
    return {
        name: count
        for name, count in counts.items()
        if name in roles.counts() and name not in given and "hosts" not in given and type(count) is int and count > 0
    }
