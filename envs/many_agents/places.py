"""The places of agents in a game: observations and actions of different agents as those of one space.

Shorter vectors are filled up with zeros. If numbers of actions differ, an agent has the first ones of the largest
space, and a mask forbids it the others. By settings an observation also holds the agent's number (`env.agent_id`, key
`agent`) and what is known of the whole game (`env.state`, key `state`), for a value that sees more than the actions do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from envs.masks import KEY, MaskKey, Masks
from envs.settings import EnvSettings
from warren.errors import ConfigurationError

AGENT, STATE, OWN = "agent", "state", "observation"  # keys of observations


class Places:
    """The places of a parallel environment's agents, in the order of `possible_agents`."""

    def __init__(self, parallel: Any, settings: EnvSettings) -> None:
        """Read the spaces of all agents. Raises ConfigurationError for spaces that one policy cannot handle."""
        self._env, self._id = parallel, settings.id
        self._agents = agents = list(parallel.possible_agents)
        observed = [parallel.observation_space(agent) for agent in agents]
        actions = [parallel.action_space(agent) for agent in agents]
        self._keys = [
            MaskKey.of(seen, acts) if settings.action_masks else None
            for seen, acts in zip(observed, actions, strict=True)
        ]
        observed = [seen if key is None else key.space for seen, key in zip(observed, self._keys, strict=True)]
        own = self._one_observation(observed)
        self._length = own.shape[0] if any(seen != own for seen in observed) else None  # filled up to
        self.action_space = self._one_action(actions)
        self._own_masks = [Masks.of(acts) for acts in actions]
        self.padded_actions = any(acts != self.action_space for acts in actions)
        looked_at = settings.action_masks or self.padded_actions
        self.masks = Masks.of(self.action_space) if looked_at else None
        self._looks = settings.action_masks
        added: dict[str, spaces.Space[Any]] = {}
        if settings.agent_id:
            added[AGENT] = spaces.Discrete(len(agents))
        self._state = settings.state
        self._has_state = _implements_state(parallel)
        if settings.state:
            added[STATE] = self._state_space(observed)
        self._added = settings.agent_id
        self._nested = isinstance(own, spaces.Dict)
        self.observation_space: spaces.Space[Any] = own
        if added:
            parts = dict(own.spaces) if isinstance(own, spaces.Dict) else {OWN: own}
            if taken := parts.keys() & added.keys():
                raise ConfigurationError(
                    f"environment {self._id!r} has observations with a key {taken.pop()!r} of their own; leave out "
                    "env.agent_id and env.state, or rename it"
                )
            self.observation_space = spaces.Dict(parts | added)
        self._bare = not added

    def observation(self, place: int, given: Any, state: np.ndarray | None) -> Any:
        """Return what the environment gave an agent as an element of `observation_space`."""
        key = self._keys[place]
        own = given if key is None else key.split(given)[0]
        if self._length is not None:
            filled = np.zeros(self._length, np.float32)
            filled[: len(own)] = own
            own = filled
        if self._bare:
            return own
        seen = dict(own) if self._nested else {OWN: own}
        if self._added:
            seen[AGENT] = place
        if state is not None:
            seen[STATE] = state
        return seen

    def state(self, observations: Mapping[str, Any]) -> np.ndarray | None:
        """Return what is known of the whole game, float32 [S]; None if the settings do not ask for it.

        It is the environment's `state()`, or all agents' observations one after another if it has none.
        """
        if not self._state:
            return None
        if self._has_state:
            return np.asarray(self._env.state(), np.float32).ravel()
        return np.concatenate([self._flat(i, observations.get(agent)) for i, agent in enumerate(self._agents)])

    def give_masks(self, observations: Mapping[str, Any], infos: Mapping[str, Any]) -> bool:
        """Return True if the agents have masks, as the first observations of a game show."""
        given = any(key is not None for key in self._keys) or any(KEY in info for info in infos.values())
        return self.padded_actions or (self._looks and given)

    def rows(
        self, valid: np.ndarray, observations: Mapping[str, Any], infos: Mapping[str, Any], at_end: bool = False
    ) -> np.ndarray:
        """Return the masks of all places, bool [P, choices]; all is legal for agents without a mask or not there.

        `at_end`: the observations are the last ones of agents that were cut off.
        """
        assert self.masks is not None
        rows = np.ones((len(self._agents), self.masks.size), np.bool_)
        for i, agent in enumerate(self._agents):
            own, key = self._own_masks[i], self._keys[i]
            if own is None:
                continue
            rows[i, own.size :] = False
            if not valid[i] or not self._looks:
                continue
            given = key.split(observations[agent])[1] if key is not None else infos.get(agent, {}).get(KEY)
            if given is not None:
                rows[i, : own.size] = own.row_at_end(given) if at_end else own.row(given)
        return rows

    def _one_observation(self, observed: list[spaces.Space[Any]]) -> Any:
        if all(space == observed[0] for space in observed):
            return observed[0]
        if all(isinstance(space, spaces.Box) and len(space.shape) == 1 for space in observed):
            return spaces.Box(-np.inf, np.inf, (max(space.shape[0] for space in observed),), np.float32)  # type: ignore[index]
        raise ConfigurationError(
            f"environment {self._id!r}: its agents observe {self._each(observed)}; one policy for all takes the same "
            "space, or vectors (Box of one dimension), which are filled up to the longest"
        )

    def _one_action(self, actions: list[spaces.Space[Any]]) -> spaces.Space[Any]:
        if all(space == actions[0] for space in actions):
            return actions[0]
        if all(isinstance(space, spaces.Discrete) and space.start == actions[0].start for space in actions):  # type: ignore[attr-defined]
            return max(actions, key=lambda space: int(space.n))  # type: ignore[attr-defined]
        raise ConfigurationError(
            f"environment {self._id!r}: its agents act by {self._each(actions)}; one policy for all takes the same "
            "space, or Discrete ones that begin with the same number"
        )

    def _state_space(self, observed: list[spaces.Space[Any]]) -> spaces.Box:
        if self._has_state:
            size = int(np.prod(self._env.state_space.shape))
        elif all(isinstance(space, spaces.Box) for space in observed):
            size = sum(int(np.prod(space.shape or ())) for space in observed)
        else:
            raise ConfigurationError(
                f"env.state: environment {self._id!r} has no state() with a state_space, and its agents' observations "
                f"are no arrays that could stand for it ({self._each(observed)}); leave it out"
            )
        self._sizes = [int(np.prod(space.shape or ())) for space in observed]
        return spaces.Box(-np.inf, np.inf, (size,), np.float32)

    def _flat(self, place: int, given: Any) -> np.ndarray:
        if given is None:
            return np.zeros(self._sizes[place], np.float32)
        key = self._keys[place]
        return np.asarray(given if key is None else key.split(given)[0], np.float32).ravel()

    def _each(self, found: list[spaces.Space[Any]]) -> str:
        return ", ".join(f"{agent}: {space}" for agent, space in zip(self._agents, found, strict=True))


def _implements_state(parallel: Any) -> bool:
    """Return True if the environment itself defines its state and the state's shape."""
    own = getattr(type(getattr(parallel, "unwrapped", parallel)), "state", None)
    inherited = own is None or own.__module__ == "pettingzoo.utils.env"
    return not inherited and getattr(parallel, "state_space", None) is not None
