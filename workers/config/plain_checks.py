"""Checks of a configuration that need only its values: numbers, names, hosts, ports, the folder.

They build nothing and do not import torch, so that a launcher answers at once. validation.py holds the others.
"""

from __future__ import annotations

import importlib.util
import math
import os
import re
import socket
from collections.abc import Iterator
from pathlib import Path

from envs.one_agent import gamecore_actors
from tasks.topology import Topology
from warren.arguments import LARGEST_SEED
from warren.errors import ConfigurationError, unknown_name
from warren.user_code import builder
from workers.config import applicable, hosts, imitation, roles, watching
from workers.config.flower_login import missing_login
from workers.config.gateway_checks import missing_packages, wrong_sampling, wrong_values
from workers.config.roles import Keeps, Role
from workers.config.run_names import run_folder
from workers.config.schema import CONF, Config
from workers.servers import given_urls

COMPRESSIONS = ("none", "fp16", "bf16", "topk")  # the names in workers/learning/allreduce/compression.py
LARGEST = 2**63 - 1  # steps, seeds and ids are stored in 64 bits with a sign
MOST_ENVIRONMENTS = 1 << 20  # stepped by one process
MOST_EPISODES = 1 << 20  # whose returns are kept for a mean
LEAGUES = tuple((CONF / "league").glob("*.yaml"))
_FOLDER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_AT_LEAST = {
    "unroll_length": 1,
    "batch_segments": 1,
    "max_staleness": 0,
    "total_steps": 1,
    "learner_threads": 1,
    "restarts": 0,
    "checkpoints_kept": 1,
    "seed": 0,
    **dict.fromkeys(roles.counts(), 1),
    **{role.id: 0 for role in roles.ROLES if role.id is not None},
}
_AT_MOST = {
    "learner_threads": 4_096,
    "seed": LARGEST_SEED,
    **{role.count: role.most for role in roles.ROLES if role.count is not None},
}


def problems(config: Config, role: str, elsewhere: bool = False) -> Iterator[str]:
    """Yield one sentence for each problem. `role`, `elsewhere`: see `validation.verify`."""
    row = roles.find(role)
    yield from _numbers(config)
    yield from applicable.problems(config, role)
    yield from _names(config, row)
    if row is not None and row.module(config) is None:
        leagues = ", ".join(sorted(one.stem for one in LEAGUES))
        yield row.otherwise.format(config=config, game=roles.game_of(config), leagues=leagues)
    yield from hosts.problems(config)
    if config.league is None and config.evaluation.every is not None:
        yield from _evaluation(config)
    if role == imitation.IMITATE:
        yield from imitation.problems(config.imitation)
    elif config.league is None and not roles.only_of_leagues(role):
        yield from _minibatch(config)
    if roles.has_gateways(config):
        yield from _gateway(config, role)
    if roles.is_served(config):
        yield from _served(config)
    if (row is None or row.keeps_folder(config)) and not elsewhere:
        yield from _folder(config)
    if role == "train":
        yield from _servers(config)
    if role == "train" and (port := config.metrics.port) is not None and 0 < port < 65536:
        yield from _port("metrics.port", port, config.metrics.address)
    if config.flower_port is not None and role == "train":
        yield from _port("flower_port", config.flower_port, config.flower_address)
        if problem := missing_login(config.flower_address):
            yield problem


def _numbers(config: Config) -> Iterator[str]:
    for name, least in _AT_LEAST.items():
        value = getattr(config, name)
        if value is not None and value < least:
            yield f"{name}: {value} is too small; it must be at least {least}"
        elif value is not None and value > (most := _AT_MOST.get(name, LARGEST)):
            yield f"{name}: {value} is too large; it must be at most {most}"
    if config.env.num_envs < 1:
        yield f"env.num_envs: {config.env.num_envs} is too small; it must be at least 1"
    elif config.env.num_envs > MOST_ENVIRONMENTS:
        yield f"env.num_envs: {config.env.num_envs} is too large; it must be at most {MOST_ENVIRONMENTS}"
    if config.env.goal is not None and not math.isfinite(config.env.goal):
        yield f"env.goal: {config.env.goal} is not a return; give a finite number, or null for a run without a goal"
    if not 1 <= config.env.goal_episodes <= MOST_EPISODES:
        yield f"env.goal_episodes: {config.env.goal_episodes} is not a number of episodes; give 1 to {MOST_EPISODES}"
    if config.event_rate is not None and not 0 <= config.event_rate <= 1:
        yield f"event_rate: {config.event_rate} is not a share of the calls; it must be from 0 to 1"
    for name in ("round_timeout", "checkpoint_every", "grace", "seconds"):
        value = getattr(config, name)
        if value is not None and not 0 < value < math.inf:  # NaN is not
            yield f"{name}: {value} is not a time span; it must be more than 0 seconds, and finite"
    if not 0 <= config.publish_every < math.inf:
        yield f"publish_every: {config.publish_every} is not a time span; it must be at least 0 seconds, and finite"
    if config.most_learners > 1:
        yield from _learners(config)
    if config.log_level.upper() not in ("DEBUG", "INFO", "WARNING", "ERROR"):
        yield f"log_level: {config.log_level!r} is not one of DEBUG, INFO, WARNING, ERROR"
    yield from watching.problems(config.metrics, config.log_format)


def _learners(config: Config) -> Iterator[str]:
    players = (config.league or {}).get("players")
    players = players if isinstance(players, dict) else {}
    for player in players:
        for rank in range(1, config.learners_of(player)):
            if (name := f"{player}-{rank}") in players:
                yield f"league.players.{name}: learner {rank} of player {player} has this name too; rename a player"
    if config.allreduce not in ("auto", "horovod", "torch"):
        yield f"allreduce: {config.allreduce!r} is not one of auto, horovod, torch"
    elif config.allreduce == "horovod" and importlib.util.find_spec("horovod") is None:
        remedy = f"run `{builder('horovod')}` (five minutes, once), or use allreduce=torch"
        yield f"allreduce: horovod is not built; {remedy}"
    if config.compression not in COMPRESSIONS:
        yield f"compression: {config.compression!r} is not one of {', '.join(COMPRESSIONS)}"
    elif config.compression == "bf16" and config.allreduce == "horovod":
        yield "compression: bf16 is refused by allreduce=horovod; use fp16 with it, or allreduce=torch"
    if not 0 < config.top_k <= 1:
        yield f"top_k: {config.top_k:g} is not a share of the numbers of a gradient; it must be above 0 and at most 1"
    if config.on_rank_loss not in ("restart", "continue"):
        yield f"on_rank_loss: {config.on_rank_loss!r} is not one of restart, continue"
    if config.learner_id >= (count := config.learners_of(config.player)):
        yield f"learner_id: {config.learner_id} is not one of the {count} learners, which count from 0"
    segments, name = config.segments_per_update, config.players if config.batch_segments is None else "batch_segments"
    of_all = {"learners": config.learners} if players.keys() - config.own_learners or not players else {}
    of_one = {f"league.players.{player}.learners": count for player, count in config.own_learners.items()}
    for setting, count in {**of_all, **of_one}.items():
        if segments % count:
            yield (
                f"{setting}: {count} cannot share the {segments} segments of an update equally; choose {name} as a "
                f"multiple of {count}"
            )
    if of_one and any("learners" in (counts or {}) for counts in config.hosts.values() if isinstance(counts, dict)):
        yield (
            f"{next(iter(of_one))}: given, and so are the learners of hosts, which hold for every player; leave out "
            "the one or the other"
        )


def _minibatch(config: Config) -> Iterator[str]:
    minibatch = config.algorithm.get("minibatch_size", 1)
    if isinstance(minibatch, int) and minibatch > config.steps_per_update > 0:
        yield (
            f"algorithm.minibatch_size: {minibatch} is more than the {config.steps_per_update} steps of an update "
            f"(segments {config.segments_per_update} x unroll_length {config.unroll_length} x env.num_envs "
            f"{config.env.num_envs})"
        )


def _evaluation(config: Config) -> Iterator[str]:
    for name in ("every", "episodes"):
        if (value := getattr(config.evaluation, name)) < 1:
            yield f"evaluation.{name}: {value} is too small; it must be at least 1"
    if config.evaluators > 1:
        yield f"evaluators: {config.evaluators} are too many; a run without a league has one"
    if roles.has_gateways(config):
        yield f"evaluation.every: {config.env.id} drives itself, so no episode of it can be played; leave it out"


def _gateway(config: Config, role: str) -> Iterator[str]:
    if config.league is None:  # a league's class has to be a game of leagues as well, which validation.py checks
        yield from wrong_sampling(config)
        for name in gamecore_actors.unfit(config.env.settings()):
            yield f"env.{name}: changes environments that are stepped, and {config.env.id} drives itself; leave it out"
    yield from wrong_values(config.gateway)
    if role in ("gateway", "train"):
        yield from missing_packages()


def _served(config: Config) -> Iterator[str]:
    if config.served_memory not in ("actor", "travelling"):
        yield f"served_memory: {unknown_name('place', config.served_memory, ('actor', 'travelling'))}"
    if config.league is not None:
        if config.served_memory == "travelling":
            yield (
                "served_memory: travelling does not fit a league, whose matches stay with the actor that began them; "
                "use served_memory=actor"
            )
        return
    if config.env.num_envs % 2:
        yield (
            f"env.num_envs: {config.env.num_envs} cannot be split into the two equal groups that an env runner steps "
            "in turn; use an even number"
        )
    if config.env.workers > config.env.num_envs // 2:
        group = config.env.num_envs // 2
        yield f"env.workers: {config.env.workers} is more than the {group} environments of a group; use at most {group}"


def _servers(config: Config) -> Iterator[str]:
    try:
        given_urls(config.broker.mode, config.broker.url, config.broker.redis_url)
    except ConfigurationError as error:
        yield from error.problems


def _names(config: Config, role: Role | None) -> Iterator[str]:
    for name, value in (("project", config.project), ("trial", config.trial)):
        if value is not None and not _FOLDER_NAME.fullmatch(value):
            yield f"{name}: {value!r} cannot name a folder; use letters, digits, '.', '-' and '_'"
    if config.trial is None and role is not None and role.keeps_folder(config):
        others = f"; {role.name} workers from {role.id}=1 on need none" if role.keeps is Keeps.first else ""
        yield f"trial: not given; this role writes into the run's folder; give trial=TRIAL{others}"
    if config.run is None and role is not None:
        yield "run: not given; name the run that this role joins (run=NAME, as the launcher prints it)"
    elif config.run is not None:
        try:
            Topology(config.run)
        except ConfigurationError as error:
            yield from error.problems


def _folder(config: Config) -> Iterator[str]:
    path = run_folder(config) if config.trial else Path(config.folder) / config.project
    existing = path
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    if not existing.is_dir():
        yield f"folder: {existing} is a file, so the run folder {path} cannot be made; choose another folder=..."
    elif not os.access(existing, os.W_OK | os.X_OK):
        yield f"folder: {existing} is not writable, so the run folder {path} cannot be made; choose another folder=..."


def _port(name: str, port: int, address: str = "127.0.0.1") -> Iterator[str]:
    if not 0 < port < 65536:
        yield f"{name}: {port} is not a port; it must be from 1 to 65535"
        return
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError as error:
            at = "" if address == "127.0.0.1" else f" of {address}"
            yield f"{name}: port {port}{at} cannot be used ({error.strerror}); choose another"
