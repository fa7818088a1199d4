"""Environments made from their ids: one table of sources, each an adapter module with a `make`.

An adapter makes a gymnasium.Env, or one of PettingZoo's, whose agents learn together (many_agents/).

| id                                | what it is                                                    |
|-----------------------------------|---------------------------------------------------------------|
| `CartPole-v1`                     | gymnasium's                                                   |
| `gym:CartPole-v1`                 | old gym's (0.26 and the 4-tuple environments of before)       |
| `atari:pong`                      | Atari games, preprocessed as usual                            |
| `envpool:Pong-v5`                 | envpool's, many at once in C++                                |
| `vizdoom:basic`                   | ViZDoom's scenarios                                           |
| `mpe:simple_spread`               | the multi-particle environments, of one agent or several      |
| `pettingzoo:pistonball_v6`        | PettingZoo's, with env.together: agents that learn together   |
| `minatar:breakout`                | MinAtar's small games                                         |
| `football:academy_corner`         | Google Research Football, against its own AI                  |
| `fightingice:zen`                 | FightingICE, against one of its AIs or chance                 |
| `minigrid:MiniGrid-Empty-5x5-v0`  | gymnasium's own form: what a module (or file.py) registers    |
| `my_game.envs:MyEnv`              | a class or factory of your own, from an importable module     |
| `path/to/file.py:MyEnv`           | the same, from a file                                         |
| `gamecore:file.py:MyActor`        | a game that drives its own sessions, by the Actor of it       |

A class of a user's own may be a vector of environments: vector/own.py.

The modules by prefix, and the table of two-player games: sources.py.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any, NamedTuple, cast

import gymnasium

from envs.construct import blame
from envs.many_agents.team import METHODS, Team, as_parallel
from envs.many_agents.turns import InTurns
from envs.many_agents.vector import AgentsVectorEnv
from envs.masks import KEY, Masks, masks_in_info
from envs.one_agent.gamecore_actors import has_masks, is_gamecore
from envs.preprocessing import preprocessed
from envs.settings import EnvSettings, settings_of
from envs.sources import ONE_AGENT, OfALeague, is_two_player, make_two_player
from envs.two_player.vector_env import PLAYERS
from envs.vector import VectorEnv, classic_control, library
from envs.vector.own import Factory, OwnVectorEnv, is_vector
from envs.vector.sync import SyncVectorEnv
from envs.vector.workers import WorkersVectorEnv
from warren.errors import ConfigurationError

USER_SOURCE = "envs.one_agent.user_envs"  # for any other "left:right"
MAY_MASK = {ONE_AGENT["gymnasium"], ONE_AGENT["gym"], USER_SOURCE}  # adapters of environments that may give masks


def make(env: str | EnvSettings, **kwargs: Any) -> gymnasium.Env:
    """Return one environment, from an id, whose constructor gets `kwargs`, or from settings.

    Raises UnknownName for an id that no source knows, and ConfigurationError, which names the line of the user's code,
    if the environment's module cannot be imported or its constructor fails.
    """
    settings = settings_of(env, kwargs)
    if of_two_players(settings):
        raise OfALeague(settings.id)
    adapter, name = _find(settings.id)
    preset = getattr(adapter, "preset", None)
    given = {**(preset(name, settings.resolved()) if preset else {}), **settings.kwargs}
    found: Any = adapter.make(name, **given)
    if hasattr(found, "possible_agents"):
        return _team(found, settings)
    if problems := list(settings.unfit_for(1)):
        raise ConfigurationError(problems)
    made: gymnasium.Env = masks_in_info(found) if settings.action_masks else found
    return preprocessed(made, settings) if settings.wraps else made


def of_two_players(settings: EnvSettings) -> bool:
    """Return True if the settings name a source of games of two players, and not their agents together."""
    return is_two_player(settings.id) and not settings.together


def _team(found: Any, settings: EnvSettings) -> Team:
    """Return a game of PettingZoo's for agents that learn together. Raises OfALeague, ConfigurationError."""
    agents = len(found.possible_agents)
    if agents == PLAYERS and not _together(settings):
        raise OfALeague(settings.id)
    if (parallel := as_parallel(found, settings.id)) is None:
        raise ConfigurationError(
            f"environment {settings.id!r} made a {type(found).__name__}, which has agents, and not the methods of "
            f"PettingZoo's ParallelEnv: {', '.join(METHODS)}"
        )
    problems = list(settings.unfit_for(agents))
    if isinstance(parallel, InTurns) and not settings.action_masks:
        problems.append(
            f"env.action_masks: {settings.id!r} is played in turns, and masks say whose turn it is; leave it out"
        )
    if problems:
        raise ConfigurationError(problems)
    return Team(parallel, settings)


def _together(settings: EnvSettings) -> bool:
    """Return True if two agents are to learn together: if `env.together` says so, and always in mpe."""
    return settings.together or settings.id.partition(":")[0] == "mpe"


def reward_threshold(env_id: str) -> float | None:
    """Return the mean return at which the environment counts as solved, if its registration gives one.

    Imports no user code.
    """
    source, colon, _ = env_id.partition(":")
    if colon and source not in ONE_AGENT:
        return None
    adapter, name = _find(env_id)
    threshold: float | None = adapter.reward_threshold(name)
    return threshold


def _find(env_id: str) -> tuple[ModuleType, str]:
    """Return (adapter module, the environment's name for it)."""
    source, colon, name = env_id.partition(":")
    if not colon:
        source, name = "gymnasium", env_id
    elif source not in ONE_AGENT:
        # The name of a class or function contains neither: it is an id that gymnasium gets from a module.
        registered = not {"-", "/"}.isdisjoint(env_id.rpartition(":")[2])
        source, name = "gymnasium" if registered else "", env_id
    return importlib.import_module(ONE_AGENT.get(source, USER_SOURCE)), name


def make_vector(env: str | EnvSettings, num_envs: int, seed: int, **kwargs: Any) -> VectorEnv:
    """Return `num_envs` copies of an environment stepped together; the first `reset()` seeds copy i with `seed + i`.

    Raises what `make` raises, and ConfigurationError if the spaces of the copies differ.
    """
    settings = settings_of(env, kwargs)
    if num_envs < 1:
        raise ConfigurationError(f"num_envs={num_envs} of environment {settings.id!r} must be at least 1")
    settings.check(num_envs)
    if settings.workers:
        return WorkersVectorEnv(settings, num_envs, seed, *spaces(settings))
    return make_slots(settings, range(num_envs), num_envs, seed)


def make_slots(settings: EnvSettings, slots: range, of: int, seed: int | None = None) -> VectorEnv:
    """Make the copies with the numbers `slots`, out of `of` in all, in this process."""
    vector = _made(settings, slots, of, seed)
    vector.keep_infos(settings.info_metrics)
    return vector


def _made(settings: EnvSettings, slots: range, of: int, seed: int | None) -> VectorEnv:
    with blame(f"{len(slots)} copies of environment {settings.id!r}"):
        arrays, own = as_arrays(settings), own_vector(settings)
        if (arrays is not None or own is not None) and (problems := list(settings.unfit_for(1))):
            raise ConfigurationError(problems)
        if arrays is not None:
            return arrays(settings, len(slots), seed)
        if own is not None:
            rewards, masked = settings.rewards(), settings.action_masks
            return OwnVectorEnv(settings.id, own, len(slots), seed, settings.kwargs, rewards, masked)
        first, masked = make(settings), settings.action_masks
        if isinstance(first, Team):
            teams = [first, *(make(settings) for _ in slots[1:])]
            return AgentsVectorEnv(cast(list[Team], teams), seed, settings.rewards(), slots.start, of)
        copies: list[Callable[[], gymnasium.Env]] = [lambda: first, *[partial(make, settings)] * (len(slots) - 1)]
        return SyncVectorEnv(copies, seed, settings.rewards(), slots.start, of, masked)


MakeVector = Callable[[EnvSettings, int, int | None], VectorEnv]


def as_arrays(settings: EnvSettings) -> MakeVector | None:
    """Return the maker of a vector in arrays, in C or by the library, that plays as the copies do; None without one.

    Raises ConfigurationError if one form is asked for and does not fit.
    """
    for name, form in (("native", classic_control), ("library", library)):
        if settings.vectorization not in ("auto", name):
            continue
        why_not = form.unfit(settings)
        if why_not is None:
            make: MakeVector = form.make
            return make
        if settings.vectorization == name:
            raise ConfigurationError(f"env.vectorization={name}: {why_not}; use env.vectorization=auto")
    return None


def own_vector(settings: EnvSettings) -> Factory | None:
    """Return the factory of a vector that is stepped as a whole, a user's or a source's; None if there is none."""
    if is_two_player(settings.id):
        return None
    adapter, name = _find(settings.id)
    if settings.vectorization == "sync" or settings.wraps:
        return None
    if hasattr(adapter, "vector"):
        of_source: Factory = adapter.vector(name)
        return of_source
    if adapter.__name__ != USER_SOURCE:
        return None
    factory = adapter.find(name)
    return factory if is_vector(factory) else None


class Described(NamedTuple):
    """An environment's spaces, from which policies and trajectories are built."""

    observation_space: gymnasium.Space[Any]
    action_space: gymnasium.Space[Any]
    masks: bool  # whether masks of legal actions come with its observations


def describe(env: str | EnvSettings, **kwargs: Any) -> Described:
    """Return an environment's spaces and whether it gives masks of legal actions; one is made, reset and closed.

    Raises what `make` raises, and ConfigurationError for an error in its reset.
    """
    settings = settings_of(env, kwargs)
    if is_gamecore(settings.id) or of_two_players(settings):
        return Described(*spaces(settings), not is_gamecore(settings.id) or has_masks(settings.id))
    made = make(settings)
    try:
        actions = made.action_space
        if isinstance(made, Team):
            with blame(f"environment {settings.id!r}: reset()"):
                made.reset()
            return Described(made.observation_space, actions, made.masked)
        may = settings.action_masks and _find(settings.id)[0].__name__ in MAY_MASK and Masks.of(actions) is not None
        if not may:
            return Described(made.observation_space, actions, False)
        with blame(f"environment {settings.id!r}: reset()"):
            _, info = made.reset()
        return Described(made.observation_space, actions, KEY in info)
    finally:
        made.close()


def spaces(env: str | EnvSettings, **kwargs: Any) -> tuple[gymnasium.Space[Any], gymnasium.Space[Any]]:
    """Return (observation space, action space) of one environment, which is made for this and closed.

    For a two-player game they are those of either player.
    """
    settings = settings_of(env, kwargs)
    if of_two_players(settings):
        games = make_two_player(settings.id, 1, 0, **settings.kwargs)
        games.close()
        return games.single_observation_space, games.single_action_space
    made = make(settings)
    try:
        return made.observation_space, made.action_space
    finally:
        made.close()
