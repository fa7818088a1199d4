"""A game of several agents that learn together: PettingZoo's environments in the form that one policy for all takes.

    observations, info = team.reset(seed=1)
    while True:
        observations, reward, terminated, truncated, info = team.step(actions)     # a list, an action of each agent

Each agent has a place for the whole game, in the order of `possible_agents`. `info["valid"]` bool [P] says which agents
decide next; an agent that has left the game, or is not there yet, does not, and its observation is zeros. The game is
over when no agent is valid. In games in turns an agent that waits has one action (turns.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector.utils import batch_space, create_empty_array, iterate

from envs.construct import require
from envs.many_agents.places import Places
from envs.many_agents.turns import InTurns
from envs.masks import FINAL, KEY, WrongMask
from envs.settings import EnvSettings
from envs.vector.base import WrongResult

VALID = "valid"  # key of the info
STEPPED = ("observations", "rewards", "terminations", "truncations", "infos")  # results of a step
SOME = "gave masks of legal actions in some games, and not in others; give them in all or none"
METHODS = ("reset", "step", "observation_space", "action_space")


class Team(gymnasium.Env):
    """One game. `observation_space` and `action_space` are those of an agent, the same for all (places.py)."""

    def __init__(self, parallel: Any, settings: EnvSettings) -> None:
        self.env, self.name = parallel, settings.id
        self.agents: list[str] = list(parallel.possible_agents)
        self._places = Places(parallel, settings)
        self.observation_space, self.action_space = self._places.observation_space, self._places.action_space
        self.masks, self.masked = self._places.masks, self._places.padded_actions  # certain only after a reset
        self._begun = False
        self.metadata = dict(getattr(parallel, "metadata", {}))
        self.render_mode = getattr(parallel, "render_mode", None)
        self._team_reward = settings.team_reward
        self._absent = next(iter(iterate(batch_space(self.observation_space, 1), _zeros(self.observation_space))))
        self.valid = np.zeros(len(self.agents), np.bool_)

    @property
    def over(self) -> bool:
        """Return True if no agent is left to decide."""
        return not self.valid.any()

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[list[Any], dict[str, Any]]:
        """Begin a game; without a seed the random generator goes on."""
        super().reset(seed=seed)
        if seed is None:  # PettingZoo would draw a seed from the operating system
            seed = int(self.np_random.integers(1 << 31))
        observations, infos = _by_agent(self.env.reset(seed=seed, options=options), ("observations", "infos"))
        present = self._present()
        self.valid = np.array([agent in present for agent in self.agents])
        if self.over:
            raise WrongResult("began a game without any agent; give `agents` those that play")
        masked = self.masks is not None and self._places.give_masks(observations, infos)
        if self._begun and masked != self.masked:
            raise WrongMask(SOME)
        self.masked, self._begun = masked, True
        return self._seen(observations, infos)

    def step(  # type: ignore[override]
        self, actions: Sequence[Any]
    ) -> tuple[list[Any], np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Make the actions of all agents that decide; the actions of others are ignored.

        Returns observations [P], reward float64 [P], terminated and truncated bool [P] of the deciding agents, info.
        """
        deciding = {agent: actions[i] for i, agent in enumerate(self.agents) if self.valid[i]}
        observations, rewards, ended, cut, infos = _by_agent(self.env.step(deciding), STEPPED)
        decided, present = self.valid, self._present()
        terminated, truncated = np.zeros_like(decided), np.zeros_like(decided)
        reward = np.zeros(len(self.agents), np.float64)
        self.valid = np.zeros_like(decided)
        for i, agent in enumerate(self.agents):
            if np.shape(earned := rewards.get(agent, 0.0)):
                raise WrongResult(f"gave agent {agent!r} the reward {earned!r}; it must be one number")
            reward[i] = earned
            if decided[i]:
                truncated[i] = cut.get(agent, False)
                # An agent that is gone without a flag has terminated.
                terminated[i] = ended.get(agent, False) or (agent not in present and not truncated[i])
            self.valid[i] = agent in present and not (ended.get(agent) or cut.get(agent))
        if self._team_reward is not None:
            of_all = reward.sum() / (len(reward) if self._team_reward == "mean" else 1)
            reward = np.full_like(reward, of_all)
        reward[~decided] = 0.0
        seen, info = self._seen(observations, infos, decided)
        if self.masked and (cut_off := truncated & ~terminated).any():
            info[FINAL] = self._places.rows(cut_off, observations, infos, at_end=True)
        return seen, reward, terminated, truncated, info

    def _present(self) -> set[str]:
        """Return the agents that are in the game now. Raises WrongResult for one that has no place."""
        present = set(self.env.agents)
        if unknown := present.difference(self.agents):
            raise WrongResult(
                f"let agent {min(unknown, key=str)!r} play, which possible_agents does not list; list every agent that "
                "may join"
            )
        return present

    def render(self) -> Any:
        """Return what the environment draws."""
        return self.env.render()

    def close(self) -> None:
        """Close the environment, if it has a method for that: a class of the user's need not have one."""
        if hasattr(self.env, "close"):
            self.env.close()

    def _seen(
        self, observations: Any, infos: Any, decided: np.ndarray | None = None
    ) -> tuple[list[Any], dict[str, Any]]:
        """Return (observation of each place, info); an agent that has just ended is observed a last time."""
        seen: list[Any] = []
        state = self._places.state(observations)
        for i, agent in enumerate(self.agents):
            there = self.valid[i] or (decided is not None and decided[i])
            if there and agent in observations:
                seen.append(self._places.observation(i, observations[agent], state))
            else:
                if self.valid[i]:
                    raise WrongResult(f"gave no observation of agent {agent!r}, which is to decide")
                seen.append(self._absent)
        info: dict[str, Any] = {VALID: self.valid}
        if self.masked:
            info[KEY] = self._places.rows(self.valid, observations, infos)
        return seen, info


def as_parallel(env: Any, env_id: str) -> Any | None:
    """Return an environment with PettingZoo's methods as a parallel one; None if it lacks some of them.

    It need not derive from PettingZoo's classes. A game in turns is converted by PettingZoo if the moves of a cycle are
    made unseen (metadata["is_parallelizable"]), else by turns.py. Raises ConfigurationError if neither can convert it.
    """
    if not all(callable(getattr(env, name, None)) for name in METHODS):
        return None
    if not hasattr(env, "agent_iter"):  # only environments in turns have it
        return env
    if getattr(env, "metadata", {}).get("is_parallelizable", False):
        return require("pettingzoo.utils.conversions", "pettingzoo", env_id).aec_to_parallel(env)
    return InTurns(env, env_id)


def _by_agent(given: Any, results: Sequence[str]) -> Any:
    """Return `given` if it is as many dicts as `results` has names; infos may be anything. Raises WrongResult."""
    if not isinstance(given, tuple | list) or len(given) != len(results):
        found = f"{len(given)} values" if isinstance(given, tuple | list) else f"a {type(given).__name__}"
        raise WrongResult(f"gave {found}; it must give {len(results)} dicts by agent: {', '.join(results)}")
    for part, name in zip(given[:-1], results, strict=False):
        if not isinstance(part, Mapping):
            raise WrongResult(f"gave the {name} {part!r}, which must be a dict by agent")
    return given


def _zeros(space: gymnasium.Space[Any]) -> Any:
    return create_empty_array(space, 1, np.zeros)
