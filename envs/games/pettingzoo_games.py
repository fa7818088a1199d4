"""PettingZoo's games of two players or more: "pettingzoo:connect_four_v3", "pettingzoo:rps_v2?num_actions=5".

This API has PettingZoo's AEC semantics. A parallel game becomes AEC by PettingZoo's conversion: the two players choose
one after the other, both from the observations before either moved. Atari games are preprocessed: atari_games.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from gymnasium import spaces

from envs.construct import blame, pip, require
from envs.games import atari_games
from envs.two_player.chance import Chance
from envs.two_player.vector_env import PLAYERS, Turn, TwoPlayerVectorEnv
from warren.errors import ConfigurationError, UnknownName


def make_two_player(name: str, num_envs: int, seed: int, /, **kwargs: Any) -> TwoPlayerVectorEnv:
    """Return `num_envs` games registered with PettingZoo as `name`, with or without a family ("classic/go_v5").

    Raises UnknownName, and ConfigurationError, which says what to install, if a package that the game needs is missing.
    """
    env_id = f"pettingzoo:{name}"
    full_id = _find(name)

    if full_id.startswith(f"{atari_games.FAMILY}/"):
        with blame(f"environment {env_id!r}"):
            return atari_games.AtariGames(env_id, full_id, num_envs, seed, **kwargs)

    with blame(f"environment {env_id!r}"):
        return AECVectorEnv(env_id, [partial(_make, "aec", name, full_id, kwargs)] * num_envs, seed)


def make(name: str, **kwargs: Any) -> Any:
    """Return PettingZoo's environment `name` itself, in parallel form if it has one, for agents that learn together.

    Raises what `make_two_player` raises.
    """
    full_id, name = _find(name), name.partition("?")[0]
    parallel = full_id in require("pettingzoo", "pettingzoo", f"pettingzoo:{name}").parallel_registry
    with blame(f"environment 'pettingzoo:{name}'"):
        return _make("parallel" if parallel else "aec", name, full_id, kwargs)


def reward_threshold(name: str) -> float | None:
    """Return the mean return at which `name` counts as solved: none has one."""
    return None


def _find(name: str) -> str:
    """Return PettingZoo's id of an environment, such as "classic/connect_four-v3"."""
    env_id = f"pettingzoo:{name}"
    pettingzoo = require("pettingzoo", "pettingzoo", env_id)
    known: dict[str, str] = {}
    for full_id in pettingzoo.aec_registry:  # every parallel game is there too
        family, _, short_name = full_id.replace("-v", "_v").rpartition("/")
        known[short_name] = known[f"{family}/{short_name}"] = full_id
    try:
        return known[name.replace("-v", "_v")]
    except KeyError:
        raise UnknownName("environment", env_id, [f"pettingzoo:{game}" for game in known]) from None


def _make(kind: str, name: str, full_id: str, kwargs: dict[str, Any]) -> Any:
    pettingzoo = require("pettingzoo", "pettingzoo", f"pettingzoo:{name}")
    try:
        return pettingzoo.make(kind, full_id, **kwargs)
    except pettingzoo.env_registry.exceptions.FailedToImport as error:
        missing, extra = error.__cause__, full_id.partition("/")[0]
        raise ConfigurationError(
            f"environment 'pettingzoo:{name}' needs more packages ({missing}); "
            f"install them: {pip()} install 'pettingzoo[{extra}]'"
        ) from error


def as_aec(env: Any, env_id: str) -> Any | None:
    """Return `env` as an AEC environment if it is one of PettingZoo's, else None."""
    pettingzoo = require("pettingzoo", "pettingzoo", env_id)
    if isinstance(env, pettingzoo.ParallelEnv):
        return require("pettingzoo.utils.conversions", "pettingzoo", env_id).parallel_to_aec(env)
    return env if isinstance(env, pettingzoo.AECEnv) else None


class AECVectorEnv(TwoPlayerVectorEnv):
    """N AEC environments of two or more agents, player i being number i of `possible_agents`, stepped in turn.

    An environment may give its `teams`, lists of agents, and `zero_sum`, whether rewards cancel: by default True for
    two agents and False for more. For people it may have `text(agent)`, the agent's view,
    `action_text(agent, action)`, a name, and `hidden_moves`.

    Observations are Box (as float32), Discrete (one-hot) or a Dict with "observation" and "action_mask"; a mask may
    also be in the agent's info. Every reset has a seed of its own, and all of a game's chance follows from it.
    """

    chance: Chance

    def __init__(self, name: str, env_fns: Sequence[Callable[[], Any]], seed: int) -> None:
        self._envs = [env_fn() for env_fn in env_fns]
        agents = self._agents = list(getattr(self._envs[0], "possible_agents", []))
        if len(agents) < PLAYERS:
            raise ConfigurationError(
                f"environment {name!r} has {len(agents)} agents {agents}; it must have two or more"
            )
        first, *rest = ((self._envs[0].observation_space(a), self._envs[0].action_space(a)) for a in agents)
        for agent, second in zip(agents[1:], rest, strict=True):
            if first != second:
                raise ConfigurationError(
                    f"environment {name!r}: {agents[0]!r} has spaces {first[0]}, {first[1]} and {agent!r} has "
                    f"{second[0]}, {second[1]}; one network plays every side, so they must be equal"
                )
        observed, actions = first
        if not isinstance(actions, spaces.Discrete):
            raise ConfigurationError(f"environment {name!r} has actions {actions}; they must be Discrete")
        if isinstance(observed, spaces.Dict):
            observed = observed["observation"]
        self._categories = (int(observed.start), int(observed.n)) if isinstance(observed, spaces.Discrete) else None
        if self._categories is None and not isinstance(observed, spaces.Box):
            raise ConfigurationError(f"environment {name!r} has observations {observed}; they must be Box or Discrete")
        shape = observed.shape if self._categories is None else (self._categories[1],)
        said = self._envs[0].unwrapped
        teams = [[agents.index(agent) for agent in team] for team in getattr(said, "teams", None) or zip(agents)]
        super().__init__(
            name,
            len(self._envs),
            tuple(shape or ()),
            int(actions.n),
            players=len(agents),
            teams=teams,
            zero_sum=bool(getattr(said, "zero_sum", len(agents) == PLAYERS)),
        )
        self.hidden_moves = bool(getattr(said, "hidden_moves", False))
        self._first_action = int(actions.start)
        self.chance = Chance(self.num_envs, seed)
        self._draws = getattr(self._envs[0], "render_mode", None) == "rgb_array"
        self._last_pictures: dict[int, np.ndarray] = {}
        self._has_text, self._has_action_text = hasattr(said, "text"), hasattr(said, "action_text")
        self._last_texts: dict[int, str] = {}

    def text(self, index: int) -> str:
        """Return the environment's own text for the agent to move, if it has one."""
        env = self._envs[index]
        return str(env.unwrapped.text(env.agent_selection)) if self._has_text else super().text(index)

    def action_text(self, index: int, action: int) -> str:
        """Return the environment's own name of the action, if it has one."""
        if not self._has_action_text:
            return super().action_text(index, action)
        env = self._envs[index]
        return str(env.unwrapped.action_text(env.agent_selection, action + self._first_action))

    def last_text(self, index: int) -> str:
        """Return the environment's own text of the last game's end in this slot, if it has one."""
        return self._last_texts.get(index, "")

    def picture(self, index: int) -> np.ndarray:
        """Return the environment's own picture; the environment is made with render_mode="rgb_array"."""
        frame = self._envs[index].render()
        return super().picture(index) if frame is None else np.asarray(frame)

    def last_picture(self, index: int) -> np.ndarray | None:
        """Return the picture of the last game's end in this slot."""
        return self._last_pictures.get(index)

    def close(self) -> None:
        """Close every environment."""
        for env in self._envs:
            env.close()

    def _reset(self) -> Turn:
        for i in range(self.num_envs):
            self._start(i)
        return self._turn_of(*self._no_outcome())

    def _step(self, action: np.ndarray) -> Turn:
        reward, done, truncated = self._no_outcome()
        for i, (env, move) in enumerate(zip(self._envs, action.tolist(), strict=True)):
            env.step(move + self._first_action)
            self._collect(env, reward[i])
            # Read these only once: each answer goes through all wrappers of the environment.
            over, cut = any(env.terminations.values()), any(env.truncations.values())
            if not (over or cut) and env.agents:
                continue
            ended = self.text(i) if self._has_text else ""
            # Agents that are out are stepped with None, until an agent that still plays is to move or all are out.
            while env.agents and (env.terminations[env.agent_selection] or env.truncations[env.agent_selection]):
                env.step(None)
                self._collect(env, reward[i])
            if not env.agents:
                done[i], truncated[i] = True, cut and not over
                if self._has_text:
                    self._last_texts[i] = ended
                if self._draws:
                    self._last_pictures[i] = self.picture(i)
                self._start(i)
        return self._turn_of(reward, done, truncated)

    def _start(self, i: int) -> None:
        # Without a seed PettingZoo's reset would draw one from the operating system.
        self.chance.begin(self._rows[i : i + 1])
        self._envs[i].reset(seed=int(self.chance.seeds[i]) % (1 << 31))  # many libraries refuse more bits

    def _collect(self, env: Any, reward: np.ndarray) -> None:
        rewards = env.rewards
        for player, agent in enumerate(self._agents):
            reward[player] += rewards.get(agent, 0)

    def _turn_of(self, reward: np.ndarray, done: np.ndarray, truncated: np.ndarray) -> Turn:
        to_move = np.empty(self.num_envs, np.int8)
        observation = np.zeros((self.num_envs, *(self.single_observation_space.shape or ())), np.float32)
        action_mask = np.ones((self.num_envs, self.num_actions), np.bool_)
        for i, env in enumerate(self._envs):
            agent = env.agent_selection
            to_move[i] = self._agents.index(agent)
            seen = env.observe(agent)
            mask = seen.get("action_mask") if isinstance(seen, dict) else None
            if mask is None:
                mask = env.infos[agent].get("action_mask")
            if isinstance(seen, dict):
                seen = seen["observation"]
            if mask is not None:
                action_mask[i] = mask
            if self._categories is None:
                observation[i] = seen
            else:
                observation[i, int(seen) - self._categories[0]] = 1
        return Turn(to_move, observation, action_mask, reward, done, truncated)
