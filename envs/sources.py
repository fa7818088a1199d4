"""Sources of environments by their ids: a table for two players and one for one agent, each source an adapter module.

| id                                     | what it is                                                              |
|----------------------------------------|-------------------------------------------------------------------------|
| `openspiel:leduc_poker`                | any game of OpenSpiel: of two players zero-sum, or of more              |
| `openspiel:goofspiel?num_cards=4`      | with parameters of the game; `openspiel:goofspiel(num_cards=4)` also    |
| `pettingzoo:connect_four_v3`           | any game of PettingZoo of two players or more, parallel or turn-based   |
| `matrix:rps`, `matrix:spinning_top`    | one-shot games with exactly known payoffs                               |
| `football:1_vs_1_easy`                 | Google Research Football, an agent on either side                       |
| `fightingice:zen`                      | FightingICE, an agent each                                              |
| `gamecore:file.py:MyActor`             | a game that drives its own sessions, by the Actor of it                 |
| `my.module:MyGame`, `file.py:MyGame`   | your own: Rules, a TwoPlayerVectorEnv, or what makes a PettingZoo env   |

An adapter has `make_two_player(name, num_envs, seed, **parameters)`, and `sequence_form(name, **parameters)` if its
games can be solved exactly.
"""

from __future__ import annotations

import contextlib
import importlib
from types import ModuleType
from typing import Any

from envs.one_agent.gamecore_actors import SOURCE as GAMECORE
from envs.two_player.vector_env import TwoPlayerVectorEnv
from warren.errors import ConfigurationError

# Prefix of an id -> the adapter module, which is imported only when an id needs it.
SOURCES = {
    "openspiel": "envs.games.openspiel_games",
    "pettingzoo": "envs.games.pettingzoo_games",
    "matrix": "envs.games.matrix_games",
    "football": "envs.football.games",
    "fightingice": "envs.fightingice.games",
    GAMECORE: "envs.games.gamecore_games",
}
# The same for environments of one agent, or of agents that learn together, which registry.py makes; some adapters are
# slow to import or print messages then.
ONE_AGENT = {
    "gymnasium": "envs.one_agent.gymnasium_envs",
    "gym": "envs.one_agent.gym_envs",
    "atari": "envs.one_agent.atari_envs",
    "envpool": "envs.one_agent.envpool_envs",
    "vizdoom": "envs.one_agent.vizdoom_envs",
    "mpe": "envs.one_agent.mpe_envs",
    "minatar": "envs.one_agent.minatar_envs",
    "football": "envs.football.envs",
    "fightingice": "envs.fightingice.envs",
    "pettingzoo": "envs.games.pettingzoo_games",  # with env.together
    GAMECORE: "envs.one_agent.gamecore_actors",
}
# Sources in which every game is an engine or a process of its own -> the most games that a league may have at once, for
# one player, one batch of an evaluator or one reference. More games take minutes to make, and all memory.
ENGINES = {"football": 32, "fightingice": 8}
FOR_ONE_TOO = {"football", "fightingice", GAMECORE}  # these also have games for one agent; the caller decides
USER_SOURCE = "envs.games.user_games"  # for any other "left:right"


def is_two_player(env_id: str) -> bool:
    """Return True if the id names a source of two-player games alone; ids of users' own games cannot tell."""
    return env_id.partition(":")[0] in SOURCES.keys() - FOR_ONE_TOO


def most_at_once(env_id: str) -> int | None:
    """Return the most games of `env_id` that a league may have at once; None: no limit."""
    return ENGINES.get(env_id.partition(":")[0])


class OfALeague(ConfigurationError):
    """Raised when an environment of one agent is asked for and the id names a game of two players."""

    def __init__(self, env_id: str) -> None:
        other = env_id.partition(":")[0] in SOURCES.keys() - {"pettingzoo"}
        together = "" if other else "; PettingZoo's agents that learn together, by one policy, have env.together=true"
        super().__init__(
            f"environment {env_id!r} is a game of two players, which a league trains: "
            f"league=mine league.env={env_id} in place of env.id={env_id}{together}"
        )


class OfOneAgent(ConfigurationError):
    """Raised when a game of two players is asked for and the id names an environment of one agent."""

    def __init__(self, env_id: str) -> None:
        super().__init__(
            f"environment {env_id!r} is of one agent, and a league trains games of two players; "
            f"train it without a league: env.id={env_id}"
        )


def make_two_player(env_id: str, num_envs: int, seed: int, **parameters: Any) -> TwoPlayerVectorEnv:
    """Return `num_envs` games stepped together, all random from `seed`. Raises UnknownName, ConfigurationError.

    `parameters` go to the game, and override those that the id itself gives.
    """
    if num_envs < 1:
        raise ConfigurationError(f"num_envs={num_envs} of environment {env_id!r} must be at least 1")
    source, name, parameters = find(env_id, parameters)
    games: TwoPlayerVectorEnv = source.make_two_player(name, num_envs, seed, **parameters)
    return games


def find(env_id: str, parameters: dict[str, Any]) -> tuple[ModuleType, str, dict[str, Any]]:
    """Return (adapter module, the game's name for it, all parameters) of an id."""
    source, colon, name = env_id.partition(":")
    if not colon:
        raise ConfigurationError(
            f"environment {env_id!r} is not a game of two players; their ids start with a source, as in "
            "'openspiel:kuhn_poker', 'pettingzoo:connect_four_v3', 'matrix:rps' or 'my.module:MyGame'"
        )
    if source in SOURCES:
        name, _, query = name.partition("?")
        return importlib.import_module(SOURCES[source]), name, {**_parse(query, env_id), **parameters}
    if source in ONE_AGENT:
        raise OfOneAgent(env_id)
    return importlib.import_module(USER_SOURCE), env_id, parameters


def _parse(query: str, env_id: str) -> dict[str, Any]:
    """Return the parameters in "size=5&noise=0.5&name=x": each an int, a float, a bool, or else a string."""
    parameters: dict[str, Any] = {}
    for pair in filter(None, query.split("&")):
        key, equals, text = pair.partition("=")
        if not equals:
            raise ConfigurationError(f"environment {env_id!r}: {pair!r} must be name=value; several are joined by '&'")
        parameters[key] = _value(text)
    return parameters


def _value(text: str) -> Any:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for number in (int, float):
        with contextlib.suppress(ValueError):
            return number(text)
    return text
