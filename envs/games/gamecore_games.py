"""Games of a league that drive their own sessions: "gamecore:path/to/file.py:MyActor" names the Actor of a gateway.

Only gateways play such a game; for all other processes it is the spaces and sides that its class declares.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np
from gymnasium.spaces import Discrete

from envs.one_agent.gamecore_actors import SOURCE, Declared, find
from envs.two_player.vector_env import PLAYERS, TurnVectorEnv
from warren.errors import ConfigurationError

Sides = tuple[tuple[str, ...], ...]  # names of the agents of each side


def sides_of(name: str, actor: type[Any]) -> Sides:
    """Return the agents of each side, as the class declares them; empty if it declares none. Raises ConfigurationError.

    `name`: that of the class, for the error.
    """
    declared = getattr(actor, "sides", ())
    wrong = ConfigurationError(
        f"actor {name!r}: sides={declared!r} must be two or more sides, each an agent's name or several, and no name "
        'twice; as in sides = ("red", "blue") or sides = (("a", "b"), ("c", "d"))'
    )
    if isinstance(declared, str) or not isinstance(declared, Sequence):
        raise wrong
    sides = tuple((side,) if isinstance(side, str) else tuple(side) for side in declared)
    agents = [agent for side in sides for agent in side]
    if len(sides) == 1 or not all(sides) or len({*agents}) < len(agents) or not all(isinstance(a, str) for a in agents):
        raise wrong
    return sides


class DeclaredGames(TurnVectorEnv):
    """The spaces and sides of a game that is played elsewhere."""

    def __init__(self, name: str, num_envs: int, actor: type[Any], sides: Sides) -> None:
        places = iter(range(sum(map(len, sides))))
        teams = [[next(places) for _ in side] for side in sides]
        actions = int(actor.action_space.n)
        super().__init__(
            f"{SOURCE}:{name}", num_envs, (1,), actions, players=sum(map(len, sides)), teams=teams, zero_sum=False
        )
        self.single_observation_space, self.single_action_space = actor.observation_space, actor.action_space
        self._declared = Declared(name, actor)

    def _reset(self) -> NoReturn:
        self._declared.reset()

    def _step(self, action: np.ndarray) -> NoReturn:
        self._declared.step(action)


def make_two_player(name: str, num_envs: int, seed: int, **kwargs: Any) -> DeclaredGames:
    """Return a description of the games. `kwargs` are for the constructor of their actors, called per session.

    Raises ConfigurationError for a class that declares no sides, or other actions than Discrete ones.
    """
    actor = find(name)
    sides = sides_of(name, actor)
    if len(sides) < PLAYERS:
        raise ConfigurationError(
            f"environment '{SOURCE}:{name}' is of one agent, and a league trains games of two players; declare the "
            f'players in its class, as in sides = ("red", "blue"), or train it without a league: '
            f"env.id={SOURCE}:{name} sampling=streaming"
        )
    if not isinstance(actor.action_space, Discrete):
        raise ConfigurationError(
            f"actor {name!r}: a league's actions are Discrete, and its action_space is {actor.action_space}"
        )
    return DeclaredGames(name, num_envs, actor, sides)
