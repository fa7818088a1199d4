"""Training one agent, or a league, from the command line to the last line: servers, roles, a live view, a clean end."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import hydra
import redis
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig

from tasks.admin.cleanup import Depths, remove_run
from tasks.events import STATUS, Subscription
from warren.errors import BrokerError, ConfigurationError, WarrenError
from workers import doctor, servers
from workers.config.command_line import REFUSALS, of_resumed_league
from workers.config.schema import BrokerConfig, Config, Sampling, from_hydra, to_yaml
from workers.config.validation import name_run, run_folder, verify
from workers.doctor.machine import processes_of
from workers.launch.interrupts import KILLED, Interrupts
from workers.launch.scaling import Scaling
from workers.launch.supervisor import Supervisor
from workers.runtime.session import Session
from workers.ui.training_view import View

LOOK_EVERY = 0.1  # s between looks at children, figures and keys pressed
DEPTHS_EVERY = 1.0  # s between looks at the queues
FIXED_ON_RESUME = re.compile(
    r"project|trial|experiment|env|env\.(id|kwargs.*)|network.*|algorithm|algorithm\.name|league|restore"
    r"|league\.(env|env_kwargs.*|network.*|players.*|settings.*)"
)


def run(config: Config) -> int:
    """Train to the end; exit status 0 when solved or all steps are done, 130 after Ctrl-C, 1 when it failed."""
    if config.resume is not None:
        config = resumed(config)
    name_run(config)
    verify(config, role="train")
    folder = run_folder(config)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.yaml").write_text(to_yaml(config))
    (folder / "outcome.json").unlink(missing_ok=True)
    if config.league is not None:
        return _run_league(config, folder)
    title = f"{config.project}/{config.trial}: {config.env.id}, {config.algorithm['name']}, {config.sampling.value}"
    interrupts = Interrupts()
    with View(title, config.env.goal, config.total_steps) as view:
        view.say(f"run folder {folder}\nrun name   {config.run}")
        mode = config.broker.mode
        with servers.acquire(mode, config.broker.url, config.broker.redis_url, folder=folder, say=view.say) as found:
            interrupts.install(lambda: found.children)
            _examine(config, folder, found, view.say)
            status = _train(config, folder, found, view, interrupts)
    return _last_words(status, folder, config)


def _run_league(config: Config, folder: Path) -> int:
    from workers.launch import league_training  # what a run without a league has no use for
    from workers.ui import league_view  # what a run without a league has no use for

    assert config.league is not None
    title = f"{config.project}/{config.trial}: {config.league['env']}, a league of {len(config.league['players'])}"
    interrupts = Interrupts()
    with league_view.LeagueView(title, None, config.total_steps) as view:
        view.say(f"run folder {folder}\nrun name   {config.run}")
        mode = config.broker.mode
        with servers.acquire(mode, config.broker.url, config.broker.redis_url, folder=folder, say=view.say) as found:
            interrupts.install(lambda: found.children)
            _examine(config, folder, found, view.say)
            status = league_training.train(config, folder, found, view, interrupts)
    return league_training.last_words(folder, status)


def _examine(config: Config, folder: Path, found: servers.Servers, say: Callable[[str], object]) -> None:
    processes, league = processes_of(config), config.league is not None
    doctor.quick(found, str(config.run), folder, say, processes=processes, league=league)


def _train(config: Config, folder: Path, found: servers.Servers, view: View, interrupts: Interrupts) -> int:
    session = Session(config, found.broker_url, found.redis_url)
    session.declare()
    figures: dict[str, Any] = {}
    subscription = Subscription(session.app, session.topology, {STATUS: figures.update}, subscriber="launcher").start()
    depths, waiting, depths_at = Depths(session.app, session.topology), {}, 0.0
    # One thread of linear algebra a process: they share this machine's cores.
    environment = {**found.environment(), "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    supervisor = Supervisor(folder, environment, config.restarts, view.say)
    scaling = Scaling(session, supervisor, view.say)
    interrupts.install(supervisor.processes)
    try:
        supervisor.add("learner", "learner", needed=True)
        scaling.start()
        if config.flower_port is not None:
            supervisor.add("flower", "flower")
            view.say(f"Flower at http://{config.flower_address}:{config.flower_port}")
        while not supervisor.poll():
            if interrupts.asked:
                view.say("stopping: the learner writes a checkpoint (Ctrl-C again stops at once)")
                return KILLED
            if words := found.dead():
                raise WarrenError(words)
            scaling.look()
            if time.monotonic() >= depths_at:
                waiting, depths_at = depths.read(), time.monotonic() + DEPTHS_EVERY
            view.show(figures or None, waiting, f"{supervisor.alive()} of {len(supervisor.children)} alive")
            time.sleep(LOOK_EVERY)
        return 0
    except WarrenError as error:
        view.say(f"error: {error}")
        return 1
    finally:
        scaling.stop()
        supervisor.stop()
        subscription.stop()
        if found.dead() is None:
            _tidy_up(session, folder, view, depths)
        depths.close()


def _tidy_up(session: Session, folder: Path, view: View, depths: Depths) -> None:
    """Account for the segments and remove the run from the servers, where those still answer."""
    try:
        if session.config.sampling is Sampling.streaming:
            _account(session, folder, view, depths.read())
        remove_run(session.app, session.redis, session.topology)
    except (BrokerError, redis.RedisError) as error:
        view.say(f"warning: the servers are away, so something of this run may be left there: {error}")


def _account(session: Session, folder: Path, view: View, waiting: dict[str, int]) -> None:
    """Where every segment went, now that all is quiet; what was confirmed and is nowhere is lost, and said so."""
    account = session.ledger.account()
    left = waiting.get(session.topology.learner_queue().routing_key, 0)
    lost = max(0, account.missing - left)
    (folder / "segments.json").write_text(json.dumps({**asdict(account), "waiting": left, "lost": lost}) + "\n")
    view.say(
        f"segments: {account.confirmed:,} confirmed, {account.learned:,} learned, {account.stale:,} too old, "
        f"{account.repeated:,} delivered again, {left:,} unused, {lost:,} lost"
    )


def _last_words(status: int, folder: Path, config: Config) -> int:
    """The outcome in one line, the last that is printed."""
    path = folder / "outcome.json"
    outcome = json.loads(path.read_text()) if path.exists() else {"state": "killed"}
    curve = folder / "learning_curve.png"
    if curve.exists():
        print(f"learning curve {curve}")
    if outcome["state"] == "solved":
        print(
            f"solved: the mean return of the last 100 training episodes reached {config.env.goal:g} "
            f"({outcome['mean_return']:.1f}) after {outcome['steps']:,} steps, "
            f"{outcome['seconds']:.1f} s after the first environment step"
        )
        return 0
    if outcome["state"] == "finished":
        short = "" if config.env.goal is None else f", short of the goal {config.env.goal:g}"
        mean = "unknown" if outcome["mean_return"] is None else f"{outcome['mean_return']:.1f}"
        print(f"finished: {outcome['steps']:,} steps done; mean return of the last 100 episodes {mean}{short}")
        return 0
    print(f"{outcome['state']}; go on with: python -m workers.train resume={folder}", flush=True)
    return status or 1


def resumed(config: Config) -> Config:
    """The configuration of the run folder `config.resume`, with this command line's overrides on top."""
    assert config.resume is not None
    folder = next(
        (p for p in (Path(config.resume), Path(config.folder) / config.resume) if (p / "config.yaml").exists()), None
    )
    if folder is None:
        known = sorted(str(path.parent) for path in Path(config.folder).glob("*/*/config.yaml"))
        hint = (
            f"the newest run folders are {', '.join(known[-3:])}" if known else f"there is none under {config.folder}/"
        )
        raise ConfigurationError(f"resume: {config.resume} is no run folder (it has no config.yaml); {hint}")
    overrides, problems = [], []
    for override in [*HydraConfig.get().overrides.task, *of_resumed_league]:
        key, _, value = override.lstrip("+~").partition("=")
        if key in ("resume", "folder"):
            continue
        if FIXED_ON_RESUME.fullmatch(key):
            problems.append(f"{override}: cannot be changed when a run is resumed; start a new run for it")
        elif key == "broker":
            overrides.append(f"broker.mode={value}")
        else:
            overrides.append(override)
    if problems:
        raise ConfigurationError(problems)
    GlobalHydra.instance().clear()
    with hydra.initialize_config_dir(str(folder.resolve()), version_base="1.3"):
        try:
            saved = from_hydra(hydra.compose("config", overrides))
        except REFUSALS as error:  # right for a new run, and not for what this one's folder holds
            raise ConfigurationError(f"resume: {' '.join(overrides)}: {error}") from None
    root = folder.resolve().parent.parent
    return replace(
        saved,
        broker=replace(BrokerConfig(**vars(saved.broker)), url=config.broker.url, redis_url=config.broker.redis_url),
        folder=os.path.relpath(root),
        project=folder.resolve().parent.name,
        trial=folder.resolve().name,
        run=None,
        resume=None,
    )
