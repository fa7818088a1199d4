"""A user's own two-player games: "my.module:MyGame" or "path/to/file.py:MyGame".

The name is one of: the rules of a game (a class derived from envs.rules.Rules); a TwoPlayerVectorEnv (its class, or any
callable with the parameters num_envs and seed that returns one); a class or callable that makes a PettingZoo
environment, parallel or AEC. A game given by rules is written out and can be solved exactly. The others can be solved
if they have an attribute `sequence_form`, a function of the game's parameters.
"""

from __future__ import annotations

import inspect
from typing import Any

from envs.construct import blame, call
from envs.exploitability import QUALIFIES
from envs.game_tree import GameTree, TreeVectorEnv
from envs.games.pettingzoo_games import AECVectorEnv, as_aec
from envs.one_agent import user_envs
from envs.rules import Rules, write_out
from envs.sequence_form import SequenceForm
from envs.two_player.vector_env import TwoPlayerVectorEnv
from warren.errors import ConfigurationError


def make_two_player(env_id: str, num_envs: int, seed: int, /, **kwargs: Any) -> TwoPlayerVectorEnv:
    """Return `num_envs` games of the class or callable `env_id`. Raises UnknownName, ConfigurationError."""
    factory: Any = user_envs.find(env_id)
    with blame(f"environment {env_id!r}"):
        if _are_rules(factory):
            tree = TreeVectorEnv(_tree_of(env_id, factory, kwargs), num_envs, seed)
            tree.hidden_moves = factory.hidden_moves
            return tree
        if {"num_envs", "seed"} <= set(inspect.signature(factory).parameters):
            games = call(f"environment {env_id!r}", factory, num_envs=num_envs, seed=seed, **kwargs)
            if not isinstance(games, TwoPlayerVectorEnv):
                raise ConfigurationError(
                    f"environment {env_id!r} made a {type(games).__name__}; it must be a TwoPlayerVectorEnv"
                )
            return games

        def make() -> Any:
            made = call(f"environment {env_id!r}", factory, **kwargs)
            env = as_aec(made, env_id)
            if env is None:
                raise ConfigurationError(
                    f"environment {env_id!r} made a {type(made).__name__}; a two-player game is a PettingZoo "
                    "environment (AECEnv, ParallelEnv) or a TwoPlayerVectorEnv made with num_envs and seed"
                )
            return env

        return AECVectorEnv(env_id, [make] * num_envs, seed)


def sequence_form(env_id: str, /, **parameters: Any) -> SequenceForm:
    """Return the whole game, for exact solution.

    Raises UnknownName, and ConfigurationError for a game that does not provide it.
    """
    factory = user_envs.find(env_id)
    if _are_rules(factory):
        with blame(f"the rules of environment {env_id!r}"):
            return SequenceForm.from_tree(_tree_of(env_id, factory, parameters))
    written_out = getattr(factory, "sequence_form", None)
    if written_out is None:
        raise ConfigurationError(f"environment {env_id!r}: its exploitability cannot be computed; {QUALIFIES}")
    with blame(f"sequence_form of environment {env_id!r}"):
        form = written_out(**parameters)
    if not isinstance(form, SequenceForm):
        raise ConfigurationError(f"environment {env_id!r}: sequence_form made a {type(form).__name__}; {QUALIFIES}")
    return form


def _are_rules(factory: Any) -> bool:
    return isinstance(factory, type) and issubclass(factory, Rules)


_trees: dict[tuple[Any, str], GameTree] = {}  # this process's newest trees: a role makes its game several times


def _tree_of(env_id: str, rules: Any, parameters: dict[str, Any]) -> GameTree:
    key = rules, repr(sorted(parameters.items()))
    tree = _trees.get(key)
    if tree is None:
        tree = write_out(env_id, call(f"environment {env_id!r}", rules, **parameters))
        _trees.clear()
        _trees[key] = tree
    return tree
