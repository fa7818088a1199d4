"""The one configuration verifier: everything that is wrong, at once, before anything starts."""

from __future__ import annotations

import importlib.util
import os
import re
import socket
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces

import envs
from agents import Algorithm, Policy, build_algorithm, build_policy, checkpoints, computing, devices
from agents.algorithms.contract import provided
from envs import exploitability, gamecore_actors
from envs.check import check
from envs.sources import OfALeague
from league.models.snapshots import STREAM
from league.rules.hyperparameters import Hyperparameters
from league.rules.names import ALLOWED, NAME
from tasks.topology import Topology
from warren.errors import CheckpointError, ConfigurationError, unknown_name
from workers.config import hosts, teachers
from workers.config.league import LeagueConfig
from workers.config.schema import CONF, Config, Sampling
from workers.servers import given_urls

ANY_SPACES = (spaces.Box(-1, 1, (1,)), spaces.Discrete(2))
COMPRESSIONS = ("none", "fp16", "bf16", "topk")  # as workers/learning/allreduce/compression.py has them
_FOLDER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_AT_LEAST = {
    "actors": 1,
    "env_runners": 1,
    "unroll_length": 1,
    "batch_segments": 1,
    "max_staleness": 0,
    "total_steps": 1,
    "learners": 1,
    "learner_threads": 1,
    "restarts": 0,
    "checkpoints_kept": 1,
    "actor_id": 0,
    "env_runner_id": 0,
    "learner_id": 0,
    "seed": 0,
    "league_workers": 1,
    "evaluators": 1,
    "league_id": 0,
    "evaluator_id": 0,
}


def verify(config: Config, role: str) -> None:
    """Raises one ConfigurationError that lists every problem.

    `role`: train, actor, env, gateway, learner, league, evaluator.
    """
    problems = [*_numbers(config), *_names(config, role), *hosts.problems(config), *_learning(config, role)]
    problems += _devices(config, role)
    problems += _gateway(config, role)
    problems += _served(config, role)
    if role in ("train", "learner"):
        problems += _folder(config)
    if role == "train":
        problems += _servers(config)
    if config.flower_port is not None and role == "train":
        problems += _port("flower_port", config.flower_port)
    if problems:
        raise ConfigurationError(problems)


def run_folder(config: Config) -> Path:
    """FOLDER/PROJECT/TRIAL."""
    assert config.trial is not None
    return Path(config.folder) / config.project / config.trial


def name_run(config: Config) -> None:
    """Fill in the trial and the run's name on the servers, where they are not given."""
    if config.trial is None:
        config.trial = f"{time.strftime('%Y%m%d-%H%M%S')}-{uuid.uuid4().hex[:4]}"
    if config.run is None and config.hosts:  # who joins has to know it
        config.run = re.sub(r"[^A-Za-z0-9_-]+", "-", config.project).strip("-")[:60] or "run"
    if config.run is None:
        # Two trials of the same name, on two machines or in two folders, must not meet on shared servers.
        name = re.sub(r"[^A-Za-z0-9_-]+", "-", f"{config.project}-{config.trial}").strip("-")
        config.run = f"{name[:60]}-{uuid.uuid4().hex[:6]}"


def _numbers(config: Config) -> Iterator[str]:
    for name, least in _AT_LEAST.items():
        value = getattr(config, name)
        if value is not None and value < least:
            yield f"{name}: {value} is too small; it must be at least {least}"
    if config.env.num_envs < 1:
        yield f"env.num_envs: {config.env.num_envs} is too small; it must be at least 1"
    if config.event_rate is not None and not 0 <= config.event_rate <= 1:
        yield f"event_rate: {config.event_rate} is no share of the calls; it must be from 0 to 1"
    for name in ("round_timeout", "checkpoint_every", "grace"):
        if not getattr(config, name) > 0:  # nan is not
            yield f"{name}: {getattr(config, name)} is no time span; it must be more than 0 seconds"
    if config.seconds is not None and not config.seconds > 0:
        yield f"seconds: {config.seconds} is no time span; it must be more than 0 seconds"
    if config.sampling is Sampling.gathered and config.batch_segments not in (None, config.actors):
        yield (
            f"batch_segments: {config.batch_segments} does not fit sampling=gathered, whose rounds take one segment "
            f"of each of the {config.actors} actors; leave it out, or use sampling=streaming"
        )
    if not config.publish_every >= 0:
        yield f"publish_every: {config.publish_every} is no time span; it must be at least 0 seconds"
    elif config.publish_every > 0 and config.sampling is Sampling.gathered:
        yield (
            f"publish_every: {config.publish_every:g} does not fit sampling=gathered, whose next round waits for the "
            "weights of the last update; leave it out, or use sampling=streaming"
        )
    if config.deterministic:
        yield from _deterministic(config)
    if config.learners > 1:
        yield from _learners(config)
    if config.log_level.upper() not in ("DEBUG", "INFO", "WARNING", "ERROR"):
        yield f"log_level: {config.log_level!r} is not one of DEBUG, INFO, WARNING, ERROR"


def _learners(config: Config) -> Iterator[str]:
    if config.league is not None:
        yield f"learners: {config.learners} of a player do not suit a league, whose players have one learner each"
    if config.allreduce not in ("auto", "horovod", "torch"):
        yield f"allreduce: {config.allreduce!r} is not one of auto, horovod, torch"
    elif config.allreduce == "horovod" and importlib.util.find_spec("horovod") is None:
        yield "allreduce: horovod is not built; run `make horovod` (five minutes, once), or use allreduce=torch"
    if config.compression not in COMPRESSIONS:
        yield f"compression: {config.compression!r} is not one of {', '.join(COMPRESSIONS)}"
    elif config.compression == "bf16" and config.allreduce == "horovod":
        yield "compression: bf16 is refused by allreduce=horovod; use fp16 with it, or allreduce=torch"
    if not 0 < config.top_k <= 1:
        yield f"top_k: {config.top_k:g} is no share of the numbers of a gradient; it must be above 0 and at most 1"
    if config.on_rank_loss not in ("restart", "continue"):
        yield f"on_rank_loss: {config.on_rank_loss!r} is not one of restart, continue"
    if config.learner_id >= config.learners:
        yield f"learner_id: {config.learner_id} is none of the {config.learners} learners, which count from 0"
    if config.league is None and config.segments_per_update % config.learners:
        name = config.players if config.batch_segments is None else "batch_segments"
        yield (
            f"learners: {config.learners} cannot share the {config.segments_per_update} segments of an update equally; "
            f"choose {name} as a multiple of {config.learners}"
        )


def _deterministic(config: Config) -> Iterator[str]:
    if config.league is not None:
        yield "deterministic: a league cannot be: which match is played next depends on which actor asks first"
    elif config.sampling is not Sampling.gathered:
        yield (
            f"deterministic: sampling={config.sampling.value} cannot be: of which segments an update is made depends "
            "on when they arrive; use sampling=gathered"
        )


def _gateway(config: Config, role: str) -> Iterator[str]:
    gamecore = config.league is None and envs.is_gamecore(config.env.id)
    if role == "gateway" and not gamecore:
        yield (
            f"env.id: {config.env.id!r} is stepped by actors; a gateway serves games that drive themselves: "
            "env.id=gamecore:FILE.py:CLASS, CLASS being derived from workers.gateway.Actor"
        )
    if not gamecore:
        return
    if role == "actor":
        yield f"env.id: {config.env.id!r} drives itself; start a gateway in the place of this actor"
    if config.sampling is not Sampling.streaming:
        yield (
            f"sampling: {config.sampling.value} asks actors to play, and env.id={config.env.id} drives itself; use "
            "sampling=streaming"
        )
    for name in gamecore_actors.unfit(config.env.settings()):
        yield f"env.{name}: is done to environments that are stepped; leave it out, {config.env.id} drives itself"
    gateway = config.gateway
    for name in ("max_sessions", "max_body"):
        if getattr(gateway, name) < 1:
            yield f"gateway.{name}: {getattr(gateway, name)} is too small; it must be at least 1"
    for name in ("idle", "receive", "answer"):
        if not getattr(gateway, name) > 0:
            yield f"gateway.{name}: {getattr(gateway, name)} is no time span; it must be more than 0 seconds"
    for name in ("port", "tcp_port"):
        if (port := getattr(gateway, name)) is not None and not 0 <= port < 65536:
            yield f"gateway.{name}: {port} is no port; it must be from 1 to 65535, or 0 for any that is free"
    if role in ("gateway", "train") and importlib.util.find_spec("starlette") is None:
        yield "gateway: needs the packages of the extra 'gateway': pip install -e '.[gateway]'"


def _served(config: Config, role: str) -> Iterator[str]:
    if config.sampling is not Sampling.served:
        if role == "env":
            yield f"sampling: {config.sampling.value} has no env runners: its actors step their own environments"
        return
    if config.league is not None:
        yield "sampling: served is for one player; use sampling=gathered or sampling=streaming for a league"
    if config.env.num_envs % 2:
        yield (
            f"env.num_envs: {config.env.num_envs} are not two equal groups, which an env runner steps in turn; choose "
            "an even number"
        )
    if config.env.workers > config.env.num_envs // 2:
        yield f"env.workers: {config.env.workers} processes for each of two groups of {config.env.num_envs // 2}"
    if config.served_memory not in ("actor", "travelling"):
        yield f"served_memory: {unknown_name('place', config.served_memory, ('actor', 'travelling'))}"


def _servers(config: Config) -> Iterator[str]:
    try:
        given_urls(config.broker.mode, config.broker.url, config.broker.redis_url)
    except ConfigurationError as error:
        yield from error.problems


def _devices(config: Config, role: str) -> Iterator[str]:
    for setting, user in (("device", "learner"), ("actor_device", "actor")):
        if role == user or (role == "train" and not config.hosts):  # of other hosts' devices nothing is known here
            try:
                device = devices.resolve(getattr(config, setting), setting)
            except ConfigurationError as error:
                yield from error.problems
                continue
            if user == "learner":
                yield from computing.problems(config.precision, config.compile, device)


def _names(config: Config, role: str) -> Iterator[str]:
    for name, value in (("project", config.project), ("trial", config.trial)):
        if value is not None and not _FOLDER_NAME.fullmatch(value):
            yield f"{name}: {value!r} cannot name a folder; use letters, digits, '.', '-' and '_'"
    if config.trial is None and (role in ("learner", "evaluator") or (role == "league" and config.league_id == 0)):
        others = "; league workers from league_id=1 on need none" if role == "league" else ""
        yield f"trial: not given; this role writes into the run's folder, so name that (trial=TRIAL){others}"
    if config.run is None and role != "train":
        yield "run: not given; name the run that this role joins (run=NAME, as the launcher prints it)"
    elif config.run is not None:
        try:
            Topology(config.run)
        except ConfigurationError as error:
            yield from error.problems


def _learning(config: Config, role: str) -> Iterator[str]:
    if config.league is not None:
        yield from _league(config, role)
        return
    if role in ("league", "evaluator"):
        yield f"league: not given; this role belongs to a league: league=NAME, one of {', '.join(_leagues())}"
        return
    settings = config.env.settings()
    if problems := list(settings.problems(config.env.num_envs if config.env.num_envs > 0 else None)):
        yield from problems
        settings = envs.EnvSettings(settings.id, settings.kwargs)  # that there is such an environment is looked at too
    try:
        observation_space, action_space = envs.spaces(settings)
        if envs.is_two_player(config.env.id):
            raise OfALeague(config.env.id)
        envs.by_library(settings)
        if role == "train" and not envs.is_gamecore(config.env.id):
            check(settings, two_player=False)
    except ConfigurationError as error:
        yield from (problem if problem.startswith("env.") else f"env.id: {problem}" for problem in error.problems)
        observation_space, action_space = ANY_SPACES  # the settings of network and algorithm are looked at all the same
    policy = algorithm = None
    try:
        policy = build_policy(config.network, observation_space, action_space, config.seed, settings.value_channels)
    except ConfigurationError as error:
        yield from error.problems
    try:
        stand_in = policy or build_policy({}, *ANY_SPACES, 0)
        algorithm = build_algorithm(config.algorithm.get("name", ""), config.algorithm, stand_in, config.seed)
    except ConfigurationError as error:
        yield from error.problems
    if policy and algorithm:
        yield from _needs(config, config.algorithm["name"], policy, algorithm)
        yield from _teacher(config, role, config.algorithm, policy, algorithm)
        yield from _peers(config, config.algorithm["name"], algorithm)
    minibatch = config.algorithm.get("minibatch_size", 1)
    if policy is not None and policy.has_memory and isinstance(minibatch, int) and minibatch < config.unroll_length:
        yield (
            f"algorithm.minibatch_size: {minibatch} is less than one unroll of unroll_length {config.unroll_length}, "
            "which a network with a memory learns from as a whole; raise the one or lower the other"
        )
    if isinstance(minibatch, int) and minibatch > config.steps_per_update > 0:
        yield (
            f"algorithm.minibatch_size: {minibatch} is more than the {config.steps_per_update} steps of an update "
            f"(segments {config.segments_per_update} x unroll_length {config.unroll_length} x env.num_envs "
            f"{config.env.num_envs})"
        )
    if role in ("train", "learner") and config.trial is not None and policy and algorithm:
        folder = run_folder(config) / "checkpoints"
        newest = checkpoints.latest(folder)
        if newest is None and any(folder.glob("*.safetensors")):
            yield f"resume: no checkpoint in {folder} is whole; delete that folder to train from the start"
        if newest is not None:
            try:
                checkpoints.restore(policy, algorithm, checkpoints.load(newest))
            except CheckpointError as error:
                yield f"resume: {error}"


def _teacher(
    config: Config, role: str, settings: Mapping[str, Any], student: Policy, algorithm: Algorithm
) -> Iterator[str]:
    """Of the processes that load it: others may be on machines that do not have it."""
    name = teachers.name_of(settings)
    if name is None or role not in ("train", "learner") or not hasattr(algorithm, "take_teacher"):
        return
    if teachers.reference(name) is not None:
        if config.league is None:
            yield f"algorithm.teacher: {name} is a model of a league's pool; here, name a run folder or a checkpoint"
        return
    folder = None
    if config.trial is not None:
        folder = run_folder(config) if config.league is None else run_folder(config) / "players" / config.player
    try:
        algorithm.take_teacher(teachers.load(name, student, folder)[0], name)
    except ConfigurationError as error:
        yield from error.problems


def _league(config: Config, role: str) -> Iterator[str]:
    try:
        league = LeagueConfig.from_dict(config.league or {})
        games = envs.make_two_player(league.env, 2, 0, **league.env_kwargs)
        if role == "train":
            check(league.env, league.env_kwargs, two_player=True)
        if league.goal is not None and role in ("train", "evaluator"):
            yield from _goal(league)
        policy = build_policy(league.network, games.single_observation_space, games.single_action_space, 0)
        name = league.algorithm.get("name", "ppo")
        algorithm = build_algorithm(name, league.algorithm, policy, 0)
        yield from (f"league: {problem}" for problem in _needs(config, name, policy, algorithm, legal_actions=True))
        yield from (f"league: {problem}" for problem in _teacher(config, role, league.algorithm, policy, algorithm))
        decisions, minibatch = league.lanes * league.unroll_length, league.algorithm.get("minibatch_size", 1)
        if policy.has_memory and "minibatch_size" in league.algorithm and minibatch < league.unroll_length:
            yield (
                f"league: algorithm.minibatch_size={minibatch} is less than one unroll of unroll_length "
                f"{league.unroll_length}, which a network with a memory learns from as a whole"
            )
        if minibatch > decisions:
            yield (
                f"league: algorithm.minibatch_size={minibatch} is more than the {decisions} decisions of an update "
                f"(lanes {league.lanes} x unroll_length {league.unroll_length})"
            )
        for name, player in league.players.items():
            drawn = Hyperparameters(player.hyperparameters).initial(np.random.default_rng(0))
            try:
                algorithm.adjust(Hyperparameters(player.hyperparameters).at(drawn, 0, 0.0))
            except ConfigurationError as error:
                yield from (f"league: hyperparameters of player {name!r}: {problem}" for problem in error.problems)
    except ConfigurationError as error:
        yield from (f"league: {problem}" for problem in error.problems)
    except TypeError as error:  # of a value of another type than the setting's
        yield f"league: {error}"
    if not NAME.fullmatch(config.player):
        yield f"player: {config.player!r} cannot name a player; use {ALLOWED}"
    kept = config.trial is not None and (run_folder(config) / "league" / STREAM).exists()  # goes first
    if config.restore is not None and not kept and not (Path(config.restore) / STREAM).exists():
        yield f"restore: {config.restore} holds no league ({STREAM} is missing); name the league folder of a run"


def _needs(config: Config, name: str, policy: Policy, algorithm: Algorithm, legal_actions: bool = False) -> list[str]:
    """What the algorithm needs of its data, and would not get."""
    return algorithm.needs.problems(
        name, provided(policy.spec(legal_actions)), config.sampling.value, config.max_staleness
    )


def _peers(config: Config, name: str, algorithm: Algorithm) -> Iterator[str]:
    """Whether several learners can train by this algorithm."""
    if config.learners > 1 and not hasattr(algorithm, "take_peers"):
        yield (
            f"learners: algorithm {name!r} has no take_peers(), so {config.learners} learners cannot train by it; "
            "derive it from agents.algorithms.gradient.GradientAlgorithm, or use learners=1"
        )


def _goal(league: LeagueConfig) -> Iterator[str]:
    try:
        exploitability.load(league.env, **league.env_kwargs)
    except ConfigurationError as error:
        for problem in error.problems:
            yield (
                f"league: goal={league.goal} is an exploitability, and cannot be reached: {problem}; without one "
                "(league.goal=null) the run ends by seconds or total_steps"
            )


def _leagues() -> list[str]:
    return sorted(path.stem for path in (CONF / "league").glob("*.yaml"))


def _folder(config: Config) -> Iterator[str]:
    path = run_folder(config) if config.trial else Path(config.folder) / config.project
    existing = path
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    if not existing.is_dir():
        yield f"folder: {existing} is a file, so the run folder {path} cannot be made; choose another folder=..."
    elif not os.access(existing, os.W_OK | os.X_OK):
        yield f"folder: {existing} is not writable, so the run folder {path} cannot be made; choose another folder=..."


def _port(name: str, port: int) -> Iterator[str]:
    if not 0 < port < 65536:
        yield f"{name}: {port} is no port; it must be from 1 to 65535"
        return
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            yield f"{name}: port {port} cannot be used ({error.strerror}); choose another"
