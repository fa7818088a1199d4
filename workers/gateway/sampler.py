"""The Sampler of a gateway: decides for the agents of all games, and collects what they lived through.

What is asked within one turn of the server's event loop, or while the forward pass before is computed, is one forward
pass on a thread of its own, so a lone game waits for nobody and a thousand share a pass.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from agents.policies import Policy
from agents.trajectories import Trajectory
from envs.rewards import Rewards
from warren.trees import Tree, map_tree, take
from workers.gateway.game import Agent
from workers.gateway.stretches import Decided, Line, Stretches
from workers.rollout.sampler import SamplerClosed, load_into
from workers.runtime.timing import Timing

logger = logging.getLogger(__name__)

LARGEST_PASS = 1024  # agents decided for in one forward pass
HELD = 2  # segments of complete stretches that may wait to be taken
PATIENCE = 5.0  # s that games are held up when more wait; then the oldest are dropped
EPISODES = 1000  # finished ones that are remembered, where nobody takes anything
STOP = object()


class Playing:
    """What the sampler knows of an agent."""

    __slots__ = ("decided", "length", "line", "memory", "returns")

    def __init__(self) -> None:
        self.line = Line()
        self.decided: Decided | None = None  # the last, of which it is not known yet what came of it
        self.memory: dict[str, Tensor] = {}
        self.length = 0
        self.returns: Any = 0.0  # as given, by channel


@dataclass(slots=True)
class _Decide:
    agent: Agent
    observation: Tree
    earned: Any
    answer: asyncio.Future[Any]


@dataclass(slots=True)
class _End:
    agent: Agent
    earned: Any
    last: Tree | None
    abandoned: bool = False


class GatewaySampler:
    """A Sampler and a Player; its budget is in decisions a slot, and is the same in every call.

    `load`, `collect` and `close` are for other threads than the event loop's.
    """

    def __init__(
        self,
        policy: Policy,
        length: int,
        slots: int,
        rewards: Rewards,
        seed: int,
        max_age: int = 1 << 30,
        timing: Timing | None = None,
        patience: float = PATIENCE,
    ) -> None:
        """`length` decisions of `slots` slots are a trajectory. `max_age`: see Stretches."""
        self.policy, self.version = policy, -1
        self.decisions = self.dropped = 0
        self._slots, self._rewards, self._timing = slots, rewards, timing or Timing()
        self._patience = patience
        self._generator = torch.Generator().manual_seed(seed)
        self._stretches = Stretches(policy.spec(returns=len(rewards.channels)), length, max_age)
        self._episodes: list[list[float]] = []
        self._asked: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._lock = threading.Lock()  # of the weights
        self._changed = threading.Condition()  # of the stretches
        self._closed = self._dropping = False
        self._thread = threading.Thread(target=self._run, name="policy", daemon=True)
        self._thread.start()

    @property
    def ready(self) -> bool:
        """Whether weights have come."""
        return self.version >= 0

    # What games ask, in the event loop or under a game's lock.

    def decide(self, agent: Agent, observation: Tree, earned: Any) -> asyncio.Future[Any]:
        """See Player."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._asked.put(_Decide(agent, observation, earned, answer))
        return answer

    def end(self, agent: Agent, earned: Any, last: Tree | None) -> None:
        """See Player."""
        self._asked.put(_End(agent, earned, last))

    def abandon(self, agent: Agent) -> None:
        """See Player."""
        self._asked.put(_End(agent, 0.0, None, abandoned=True))

    # The Sampler's contract.

    def load(self, weights: Mapping[str, Tensor], version: int, behaviour: Mapping[str, float] | None = None) -> None:
        """As Sampler.load; weights that are older than those that play are left, which two threads may bring."""
        with self._lock:
            if version <= self.version:
                return
            load_into(self.policy, weights, version, behaviour)
            self.version = version
        with self._changed:
            self._stretches.renew(version)

    def collect(self, budget: int) -> Trajectory:
        """As Sampler.collect; waits until games have made enough decisions. Raises SamplerClosed."""
        assert budget == self._stretches.length
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._stretches.ready >= self._slots)
            if self._closed:
                raise SamplerClosed
            episodes, self._episodes = self._episodes, []
            columns = 2 + len(self._rewards.channels)
            rows = np.array(episodes, np.float32).reshape(-1, columns)
            trajectory = self._stretches.take(self._slots, rows)
            self._dropping = False
            self._changed.notify_all()
        return trajectory

    def close(self) -> None:
        """Decide nothing more; whoever waits is told."""
        self._asked.put(STOP)
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join(timeout=5.0)

    # The policy's thread.

    def _run(self) -> None:
        stopped = False
        while not stopped:
            asked = [self._asked.get()]
            while len(asked) < LARGEST_PASS and asked[-1] is not STOP and not self._asked.empty():
                asked.append(self._asked.get())
            if stopped := asked[-1] is STOP:
                asked.pop()
            for part in _in_order(asked):
                decides = [one for one in part if isinstance(one, _Decide)]
                try:
                    self._end([one for one in part if isinstance(one, _End)])
                    actions = self._decide(decides) if decides else []
                except Exception as error:  # of one pass; the next has other agents
                    logger.exception("a forward pass of %d agents failed", len(decides))
                    _tell(decides, error=error)
                else:
                    _tell(decides, actions)
            self._hold_up()

    def _decide(self, asked: Sequence[_Decide]) -> Sequence[Any]:
        """One forward pass: actions as the action space has them."""
        began = time.perf_counter()
        policy = self.policy
        observation = map_tree(lambda *parts: np.stack(parts), *(one.observation for one in asked))
        players = [_playing(one.agent) for one in asked]
        with self._lock:
            version = self.version
            memory = self._memory(players)
            acted = policy.step(observation, memory, generator=self._generator)
        actions = policy.env_action(acted.action)
        before = {name: part.cpu().numpy() for name, part in memory.items()}
        with self._changed:
            for row, (one, player) in enumerate(zip(asked, players, strict=True)):
                decided = Decided(
                    one.observation, take(acted.action, row), take(acted.extras, row), take(before, row), version
                )
                if player.decided is not None:
                    reward = self._reward(player, one.earned)
                    self._stretches.follow(player.line, player.decided, reward, decided)
                player.decided = decided
                player.memory = take(acted.memory, row)
            self._changed.notify_all()
        self.decisions += len(asked)
        self._timing.add("policy: decide", time.perf_counter() - began)
        return [take(actions, row) for row in range(len(asked))]

    def _end(self, ends: Sequence[_End]) -> None:
        values = self._values([one for one in ends if one.last is not None])
        with self._changed:
            for one in ends:
                player, one.agent.state = one.agent.state, None
                if player is None or player.decided is None:
                    continue
                if one.abandoned:
                    self._stretches.cut_off(player.line, player.decided.extras["value"])
                    continue
                reward = self._reward(player, one.earned)
                self._stretches.end(player.line, player.decided, reward, values.get(id(one)))
                channels = player.returns.tolist() if self._rewards.channels else []
                self._episodes.append([float(self._rewards.total(player.returns)), float(player.length), *channels])
            if ends:
                self._changed.notify_all()

    def _values(self, cut: Sequence[_End]) -> dict[int, Any]:
        """Of the observations at which episodes were cut off."""
        players = [(one, one.agent.state) for one in cut if one.agent.state is not None]
        if not players:
            return {}
        observation = map_tree(lambda *parts: np.stack(parts), *(one.last for one, _ in players))
        with self._lock:
            values = self.policy.value(observation, self._memory([player for _, player in players]))
        return {id(one): value for (one, _), value in zip(players, values, strict=True)}

    def _memory(self, players: Sequence[Playing]) -> dict[str, Tensor]:
        with torch.inference_mode():
            memory = self.policy.initial_memory(len(players))
            for name, part in memory.items():
                for row, player in enumerate(players):
                    if player.memory:
                        part[row] = player.memory[name]
        return memory

    def _reward(self, player: Playing, earned: Any) -> Any:
        """What is learned from; `earned` is added to the episode."""
        rewards = self._rewards
        given = earned + np.zeros(len(rewards.channels)) if rewards.channels else earned
        player.returns = player.returns + given
        player.length += 1
        return rewards.learned_from(given if self.policy.channels else np.asarray(rewards.total(given)))

    def _hold_up(self) -> None:
        """Wait while more is complete than may wait to be taken; then drop the oldest, so that what waits is young."""
        most = HELD * self._slots
        with self._changed:
            if self._stretches.ready <= most:
                return
            if not self._dropping:
                self._changed.wait_for(lambda: self._closed or self._stretches.ready <= most, self._patience)
            if (over := self._stretches.ready - most) > 0 and not self._closed:
                self._stretches.drop_oldest(over)
                del self._episodes[:-EPISODES]
                self.dropped += over * self._stretches.length
                if not self._dropping:
                    logger.warning("the learner takes nothing: %d decisions dropped so far", self.dropped)
                self._dropping = True


def _playing(agent: Agent) -> Playing:
    if agent.state is None:
        agent.state = Playing()
    playing: Playing = agent.state
    return playing


def _in_order(asked: list[Any]) -> list[list[Any]]:
    """Parts that may be done at once, ends before decisions: in each, no agent ends after it was to decide."""
    parts: list[list[Any]] = [[]]
    deciding: set[int] = set()
    for one in asked:
        if isinstance(one, _Decide):
            deciding.add(id(one.agent))
        elif id(one.agent) in deciding:
            parts.append([])
            deciding.clear()
        parts[-1].append(one)
    return parts


def _tell(asked: Sequence[_Decide], actions: Sequence[Any] = (), error: Exception | None = None) -> None:
    """Hand each game its answer in its event loop, all in one call."""
    if not asked:
        return
    loop = asked[0].answer.get_loop()

    def tell() -> None:
        for index, one in enumerate(asked):
            if one.answer.done():  # the game has gone
                continue
            if error is not None:
                one.answer.set_exception(RuntimeError(f"the policy failed: {error}"))
            else:
                one.answer.set_result(actions[index])

    try:
        loop.call_soon_threadsafe(tell)
    except RuntimeError:  # the loop has closed: nobody waits
        return
