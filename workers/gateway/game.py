"""Game: carries out an Actor's `act`, `reward` and `over` for one session, in the server's event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from agents.trees import ArraySpec, Spec, problems
from envs.masks import Masks, WrongMask
from envs.rewards import Rewards, WrongReward
from warren.trees import Tree, leaves
from workers.gateway.limits import Limits

LARGEST_REWARD = 1e30  # sums of such rewards are float32 numbers; one that is not would spoil other games' segments


class Agent:
    """One agent of a game; the Player that decides for it keeps `by` and `state` as it likes."""

    __slots__ = ("by", "deciding", "earned", "name", "state")

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.earned: Any = 0.0  # since its last action was asked for
        self.deciding = False
        self.by: Any = None  # decides for it, in a match of a league
        self.state: Any = None


class Player(Protocol):
    """Decides for the agents of a session's games; all methods return at once, `decide` with a future."""

    def join(self, agent: Agent) -> None:
        """Take an agent that is about to decide for the first time. Raises ValueError for one that cannot play."""
        ...

    def credit(self, name: str, earned: Any) -> None:
        """Take a reward that no decision has earned: it came before the agent's first decision, or after its last."""
        ...

    def finish(self, whole: bool) -> None:
        """Take the end of a game, after its agents' episodes have ended; `whole`: played out, else it went away."""
        ...

    def decide(
        self, agent: Agent, observation: Tree, earned: Any, action_mask: np.ndarray | None = None
    ) -> asyncio.Future[Any]:
        """Return the agent's next action, legal by `action_mask` bool [A]; `earned` since the action before."""
        ...

    def end(self, agent: Agent, earned: Any, last: Tree | None, action_mask: np.ndarray | None = None) -> None:
        """End the agent's episode: truly, or cut off at the observation `last`, where `action_mask` is legal."""
        ...

    def abandon(self, agent: Agent) -> None:
        """Cut off the episode of an agent whose game went away, at the observation of its last decision."""
        ...


class Players(Protocol):
    """Decides for all sessions."""

    @property
    def ready(self) -> bool:
        """Return True once it has weights."""
        ...

    def of_session(self) -> Player:
        """Return the Player that decides for the agents of one new session."""
        ...


class Game:
    """The agents of one session."""

    def __init__(
        self,
        session: str,
        player: Player,
        spec: Spec,
        rewards: Rewards,
        loop: asyncio.AbstractEventLoop,
        masks: Masks | None = None,
        most: int = Limits.agents,
    ) -> None:
        """`spec`: of one observation; `masks`: those of its actions, None without any; `most`: agents at most."""
        self.session, self.loop = session, loop
        self.key: str | None = None
        self.time: str | None = None
        self._player, self._spec, self._rewards = player, spec, rewards
        self._masks, self._most = masks, most
        self._agents: dict[str, Agent] = {}
        self._lock = threading.Lock()  # an actor's plain functions call from a thread
        self._closed = False

    async def act(self, observation: Any, name: str, action_mask: Any = None, reward: Any = None) -> Any:
        """See Actor.act."""
        seen = read(self._spec, observation, "observation")
        legal = None if action_mask is None else self._legal(action_mask)
        given = None if reward is None else self._given(reward)
        with self._lock:
            if self._closed:
                raise ValueError(f"session {self.session} is closed")
            agent = self._agents.get(name)
            if agent is None:
                agent = self._new(name)
                if given is not None:  # it came before the agent's first action
                    self._player.credit(name, given)
                    given = None
            if agent.deciding:
                raise ValueError(f"agent {name!r} is still deciding; await its action before asking for the next")
            earned, agent.earned, agent.deciding = agent.earned, 0.0, True
            action = self._player.decide(agent, seen, earned if given is None else earned + given, legal)
        try:
            return await action
        finally:
            agent.deciding = False

    def _legal(self, action_mask: Any) -> np.ndarray:
        if self._masks is None:
            raise ValueError("action_mask: the actor's class has to declare that there are such: action_masks = True")
        try:
            return self._masks.row(action_mask).copy()  # the caller may fill its own anew
        except WrongMask as error:
            raise ValueError(f"the game {error}") from None
        except (TypeError, LookupError):
            raise ValueError(f"action_mask: {action_mask!r:.80} is not nested like {self._masks.space}") from None

    def _new(self, name: str) -> Agent:
        if len(self._agents) >= self._most:
            raise ValueError(
                f"agent {name!r}: {len(self._agents)} agents play in this session, and no more may (gateway.max_agents)"
            )
        agent = Agent(name)
        self._player.join(agent)
        self._agents[name] = agent
        return agent

    def reward(self, amount: Any, name: str) -> None:
        """See Actor.reward."""
        given = self._given(amount)
        with self._lock:
            agent = self._agents.get(name)
            if agent is not None:
                agent.earned = agent.earned + given
            else:
                self._player.credit(name, given)

    def _given(self, amount: Any) -> Any:
        try:
            given = np.asarray(self._rewards.read(amount), np.float64) if self._rewards.channels else float(amount)
        except (WrongReward, TypeError, ValueError, OverflowError) as error:
            raise ValueError(f"reward: {error}") from None
        if not (np.abs(given) <= LARGEST_REWARD).all():
            raise ValueError(f"reward: {amount!r} is not finite, or beyond {LARGEST_REWARD:g}")
        return given

    def over(self, name: str, last: Any, action_mask: Any = None) -> None:
        """See Actor.over."""
        seen = None if last is None else read(self._spec, last, "last")
        legal = None if action_mask is None else self._legal(action_mask)
        with self._lock:
            agent = self._agents.get(name)
            if agent is None:
                return
            if agent.deciding:
                raise ValueError(f"agent {name!r} is still deciding; its episode cannot be over")
            del self._agents[name]
            self._player.end(agent, agent.earned, seen, legal)

    def begin_anew(self) -> None:
        """See Actor.new_game."""
        with self._lock:
            if names := [name for name, agent in self._agents.items() if agent.deciding]:
                raise ValueError(f"agent {names[0]!r} is still deciding; the game cannot be over")
            agents, self._agents = self._agents, {}
            self._end(agents)

    def finish(self) -> None:
        """End the game and all its episodes."""
        with self._lock:
            self._closed = True
            agents, self._agents = self._agents, {}
        self._end(agents)

    def _end(self, agents: Mapping[str, Agent]) -> None:
        for name, agent in agents.items():
            if agent.deciding:  # the game did not wait for its action
                self._player.credit(name, agent.earned)
                self._player.abandon(agent)
            else:
                self._player.end(agent, agent.earned, None)
        self._player.finish(True)

    def abandon(self) -> None:
        """Cut off all episodes of a game that went away."""
        with self._lock:
            self._closed = True
            agents, self._agents = self._agents, {}
        for agent in agents.values():
            self._player.abandon(agent)
        self._player.finish(False)


def read(spec: Spec, value: Any, name: str) -> Tree:
    """Return `value`, lists or arrays, as arrays of `spec`. Raises ValueError."""
    seen = _arrays(spec, value, name)
    wrong = problems(spec, seen, (), name)
    if wrong:
        raise ValueError("; ".join(wrong))
    for path, leaf in leaves(seen):
        if leaf.dtype.kind == "f" and not np.isfinite(leaf.sum()) and not np.isfinite(leaf).all():
            raise ValueError(f"{name}{f'.{path}' if path else ''} holds numbers that are not finite")
    return seen


def _arrays(spec: Spec, value: Any, name: str) -> Tree:
    if isinstance(spec, ArraySpec):
        return _array(spec, value, name)
    if isinstance(spec, dict) and isinstance(value, Mapping):
        return {key: _arrays(spec[key], part, f"{name}.{key}") if key in spec else part for key, part in value.items()}
    if isinstance(spec, tuple) and isinstance(value, list | tuple):  # of any length, which `problems` checks
        return (*(_arrays(*both, f"{name}.{i}") for i, both in enumerate(zip(spec, value))), *value[len(spec) :])  # noqa: B905
    return value


def _array(spec: ArraySpec, value: Any, name: str) -> np.ndarray:
    array = _made(value, name)
    if array.dtype.name == spec.dtype or array.dtype.kind not in "biuf":
        return array
    # Numbers of any kind are converted to the space's dtype; to integers or bools only without a change.
    with np.errstate(over="ignore", invalid="ignore"):  # values that do not fit are refused
        converted = array.astype(spec.dtype)
    if converted.dtype.kind != "f" and (changed := converted != array).any():
        at = np.argwhere(changed)[0].tolist()
        raise ValueError(f"{name} holds {array[tuple(at)]} at {at}, which is no {spec.dtype}")
    return converted


def _made(value: Any, name: str) -> np.ndarray:
    try:
        return np.array(value)  # a copy: the caller may fill its own anew
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"{name}: no array can be made of it: {error}") from None
