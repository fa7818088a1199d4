"""The configuration verifier: reports all problems at once, before anything starts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces

import envs
from agents import Algorithm, Policy, build_algorithm, build_policy, checkpoints, computing, devices
from agents.algorithms.contract import provided
from envs.check import check
from envs.many_agents.team import Team
from envs.sources import OfALeague
from league.empirical_game.mixture import GAMES
from league.models.saved_stream import holds_league
from league.models.snapshots import STREAM, returns_in
from league.rules.hyperparameters import Hyperparameters
from league.rules.names import ALLOWED, NAME
from warren.arguments import LARGEST_SEED
from warren.errors import CheckpointError, ConfigurationError
from workers.config import (
    gateway_checks,
    initial_weights,
    league_games,
    middleware,
    plain_checks,
    replay_checks,
    roles,
    teachers,
    trackers,
)
from workers.config.imitation import IMITATE, unsuited
from workers.config.league import LeagueConfig
from workers.config.run_names import run_folder
from workers.config.schema import Config, Sampling

ANY_SPACES = (spaces.Box(-1, 1, (1,)), spaces.Discrete(2))


def verify(config: Config, role: str, elsewhere: bool = False) -> None:
    """Raise one ConfigurationError that lists every problem.

    `role`: train, actor, env, gateway, learner, league, evaluator, flower. `elsewhere`: the role will run in another
    container, so its devices and the files in its folder are not checked.
    """
    problems = [*plain_checks.problems(config, role, elsewhere), *problems_of_building(config, role, elsewhere)]
    if problems:
        raise ConfigurationError(problems)


def problems_of_building(config: Config, role: str, elsewhere: bool = False) -> Iterator[str]:
    """Yield the problems found by building environment, network and algorithm; `plain_checks` yields the others."""
    if not 0 <= config.seed <= LARGEST_SEED:
        config = replace(config, seed=0)  # plain_checks reports the seed; everything else is checked all the same
    yield from _learning(config, role, elsewhere)
    yield from middleware.problems(config.middleware)
    yield from trackers.problems(config.trackers)
    yield from computing.problems_of_perceptrons(config.perceptrons, here=not elsewhere)
    if not elsewhere:
        yield from _devices(config, role)


def _devices(config: Config, role: str) -> Iterator[str]:
    for one in roles.ROLES:
        # Devices of other hosts cannot be checked from here.
        asked = role == one.name or (role == "train" and not config.hosts and one.module(config) is not None)
        if one.device is not None and asked:
            try:
                device = devices.resolve(getattr(config, one.device), one.device)
            except ConfigurationError as error:
                yield from error.problems
                continue
            if one is roles.LEARNER:
                yield from computing.problems(config.precision, config.compile, device)


def _learning(config: Config, role: str, elsewhere: bool) -> Iterator[str]:
    if config.league is not None:
        yield from _league(config, role, elsewhere)
        return
    if roles.only_of_leagues(role):
        return
    settings = config.env.settings()
    if problems := list(settings.problems(config.env.num_envs if config.env.num_envs > 0 else None)):
        yield from problems
        settings = envs.EnvSettings(settings.id, settings.kwargs)  # so that the environment's existence is checked too
    try:
        observation_space, action_space = envs.spaces(settings)
        if envs.is_two_player(config.env.id) and not settings.together:
            raise OfALeague(config.env.id)
        envs.as_arrays(settings)
        if config.sampling is Sampling.served and isinstance(made := envs.make(settings), Team):
            made.close()
            yield (
                f"sampling: served is for one agent's environments and leagues, and {settings.id!r} has agents that "
                "learn together; use sampling=gathered or sampling=streaming"
            )
        if role == "train" and not envs.is_gamecore(config.env.id):
            check(settings, two_player=False)
    except ConfigurationError as error:
        yield from (problem if problem.startswith("env.") else f"env.id: {problem}" for problem in error.problems)
        observation_space, action_space = ANY_SPACES  # network and algorithm are checked all the same
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
        needed = _needs(config, config.algorithm["name"], policy, algorithm, config.unroll_length)
        yield from unsuited(config.algorithm["name"], algorithm.needs) if role == IMITATE else needed
        if not elsewhere:
            yield from _teacher(config, role, config.algorithm, policy, algorithm)
        yield from replay_checks.of_own_buffer(config, algorithm.needs, role)
        yield from _peers(config, config.algorithm["name"], algorithm)
    minibatch = config.algorithm.get("minibatch_size")  # None: no minibatches
    learned = config.unroll_length - (0 if algorithm is None else algorithm.needs.burn_in)
    if policy is not None and policy.has_memory and isinstance(minibatch, int) and minibatch < learned:
        yield (
            f"algorithm.minibatch_size: {minibatch} is less than one unroll of unroll_length {config.unroll_length}, "
            "which a network with a memory learns from as a whole; raise the one or lower the other"
        )
    if role in ("train", "learner", IMITATE) and config.trial is not None and not elsewhere and policy and algorithm:
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
    """Yield the problems of the teacher, for roles that load it: other roles may be on machines without its files."""
    name = teachers.name_of(settings)
    if name is None or role not in ("train", "learner", IMITATE) or not hasattr(algorithm, "take_teacher"):
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


def _league(config: Config, role: str, elsewhere: bool) -> Iterator[str]:
    try:
        league = LeagueConfig.from_dict(config.league or {})
        if too_many := list(league_games.engines(league)):
            yield from too_many
            return
        games = envs.make_two_player(league.env, 2, 0, **league.env_kwargs)
        unfit = list(league_games.unfit(league, games, config.sampling is Sampling.served))
        yield from (f"league: {problem}" for problem in unfit)
        if roles.has_gateways(config):
            yield from gateway_checks.wrong_sampling(config)
        if role == "train" and not envs.is_gamecore(league.env):
            check(league.env, league.env_kwargs, two_player=True)
        if league.earned_share and config.seconds is None:
            yield (
                f"league: earned_share={league.earned_share} changes how many decisions each player makes; give "
                "seconds=, by which they then tell how far the run is"
            )
        if role in ("train", "evaluator") and not unfit:
            yield from league_games.needing_the_whole_game(league)
        games.close()
        policy = build_policy(league.network, games.single_observation_space, games.single_action_space, 0)
        algorithm = _built(league.algorithm_of(""), policy)
        if role == IMITATE:
            yield from unsuited(league.algorithm_of("")["name"], algorithm.needs)
            return
        lacking = _learns(config, league, policy, algorithm)
        yield from (f"league: {problem}" for problem in lacking)
        if not elsewhere:
            teaching = _teacher(config, role, league.algorithm, policy, algorithm)
            yield from (f"league: {problem}" for problem in teaching)
        yield from _peers(config, league.algorithm_of("")["name"], algorithm)
        yield from (f"league: {problem}" for problem in _players(config, league, role, policy, algorithm, lacking))
    except ConfigurationError as error:
        yield from (f"league: {problem}" for problem in error.problems)
    except TypeError as error:  # a value has another type than its setting
        yield f"league: {error}"
    if not NAME.fullmatch(config.player):
        yield f"player: {config.player!r} cannot name a player; use {ALLOWED}"
    kept = config.trial is not None and holds_league(run_folder(config) / "league")  # takes precedence over `restore`
    if config.restore is not None and not elsewhere and not kept:
        yield from _restored(Path(config.restore), str((config.league or {}).get("evaluation", GAMES)))


def _restored(folder: Path, evaluation: str) -> Iterator[str]:
    if not (folder / STREAM).exists():
        yield f"restore: {folder} holds no league ({STREAM} is missing); name the folder `league` of a run"
    else:
        known = returns_in(folder)
        if known.total_games and (found := known.settings.source) != evaluation:
            yield f"league.evaluation: returns of {folder} are of {found!r}, not of {evaluation!r}; give {found}"


def _built(settings: Mapping[str, Any], policy: Policy) -> Algorithm:
    return build_algorithm(settings["name"], settings, policy, 0)


def _learns(config: Config, league: LeagueConfig, policy: Policy, algorithm: Algorithm, player: str = "") -> list[str]:
    """Return the reasons why `policy` and `algorithm` cannot learn from a league's trajectories.

    `player`: whose they are; "": those of all players that have none of their own.
    """
    settings = league.algorithm_of(player)
    lacking = _needs(config, settings["name"], policy, algorithm, league.unroll_length, legal_actions=True)
    decisions, minibatch = league.lanes * league.unroll_length, settings.get("minibatch_size", 1)
    learned = league.unroll_length - algorithm.needs.burn_in
    if policy.has_memory and "minibatch_size" in settings and minibatch < learned:
        lacking.append(
            f"algorithm.minibatch_size={minibatch} is less than one unroll of unroll_length {league.unroll_length}, "
            "which a network with a memory learns from as a whole"
        )
    if minibatch > decisions:
        lacking.append(
            f"algorithm.minibatch_size={minibatch} is more than the {decisions} decisions of an update "
            f"(lanes {league.lanes} x unroll_length {league.unroll_length})"
        )
    return lacking


def _players(
    config: Config, league: LeagueConfig, role: str, policy: Policy, algorithm: Algorithm, said: Sequence[str]
) -> Iterator[str]:
    """Yield the problems of each player's own network and algorithm, initial weights and hyperparameters.

    `policy`, `algorithm`: for players that have none of their own; `said`: their problems, which are reported already.
    """
    policies: dict[str, Policy] = {}
    for name, player in league.players.items():
        own, learns = policy, algorithm
        try:
            if player.network:
                spaces = policy.learning_space, policy.action_space
                own = build_policy(league.network_of(name), *spaces, 0)
            if player.network or player.algorithm:
                learns = _built(league.algorithm_of(name), own)
                lacking = _learns(config, league, own, learns, name)
                yield from (f"player {name!r}: {problem}" for problem in lacking if problem not in said)
                yield from _peers(config, league.algorithm_of(name)["name"], learns)
        except ConfigurationError as error:
            yield from (f"network and algorithm of player {name!r}: {problem}" for problem in error.problems)
            continue
        policies[name] = own
        if role == "train" and initial_weights.model_of(player.initial, league.players) is None:
            yield from _initial(name, player.initial, own)
        drawn = Hyperparameters(player.hyperparameters).initial(np.random.default_rng(0))
        try:
            learns.adjust(Hyperparameters(player.hyperparameters).at(drawn, 0, 0.0))
        except ConfigurationError as error:
            yield from (f"hyperparameters of player {name!r}: {problem}" for problem in error.problems)
    yield from initial_weights.misfits(league, policies)


def _initial(player: str, initial: str | None, policy: Policy) -> Iterator[str]:
    """Yield why a player cannot begin with the checkpoint that its `initial` names; pool models appear only later."""
    if initial is None:
        return
    try:
        initial_weights.load(initial, policy, player)
    except ConfigurationError as error:
        yield from error.problems


def _needs(
    config: Config, name: str, policy: Policy, algorithm: Algorithm, unroll_length: int, legal_actions: bool = False
) -> list[str]:
    """Return a sentence for each thing that the algorithm needs of its data and would not get."""
    lacking = algorithm.needs.problems(
        name, provided(policy.spec(legal_actions)), config.sampling.value, config.max_staleness, unroll_length
    )
    return [*lacking, *replay_checks.problems(config, name, algorithm.needs)]


def _peers(config: Config, name: str, algorithm: Algorithm) -> Iterator[str]:
    """Yield an error if several learners are set and the algorithm cannot train with more than one."""
    if config.most_learners > 1 and not hasattr(algorithm, "take_peers"):
        yield (
            f"learners: algorithm {name!r} has no take_peers(), so {config.most_learners} learners cannot train by it; "
            "derive it from agents.algorithms.gradient.GradientAlgorithm, or use learners=1"
        )
