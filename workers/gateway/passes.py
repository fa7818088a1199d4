"""Passes: decides for the agents of all games at once, on a thread of its own.

Requests that arrive within one turn of the server's event loop, or while the last forward pass is computed, share one
forward pass. So a lone game waits for no other, and a thousand games share a pass. The thread is woken once per turn.
If each request woke it, it would contend for the interpreter with the event loop, which is still reading other
requests.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np

from envs.masks import Masks
from warren.trees import Tree
from workers.gateway.game import Agent, Player

logger = logging.getLogger(__name__)

LARGEST_PASS = 1024  # agents decided for in one forward pass
WAKE, STOP = object(), object()


@dataclass(slots=True)
class Decide:
    """A request for an agent's next action; `earned`: the reward of the one before."""

    agent: Agent
    observation: Tree
    earned: Any
    answer: asyncio.Future[Any]
    action_mask: np.ndarray | None = None  # bool [A]: the legal ones, a row of envs.masks.Masks; None: all


@dataclass(slots=True)
class End:
    """The end of an agent's episode: a true end, a cut at the observation `last`, or a game that was abandoned."""

    agent: Agent
    earned: Any
    last: Tree | None
    action_mask: np.ndarray | None = None  # bool [A]: the legal ones at `last`; None: all
    abandoned: bool = False


class Passes:
    """Players (game.py), and the Player of all sessions: requests that came together go to `decide_all` and `end_all`.

    `start` begins the thread.
    """

    def __init__(self) -> None:
        self._asked: deque[Decide | End] = deque()
        self._wakes: queue.SimpleQueue[object] = queue.SimpleQueue()
        self._waking = False  # the thread is woken at the end of this turn of the event loop
        self._thread = threading.Thread(target=self._run, name="policy", daemon=True)

    def start(self) -> None:
        """Decide from now on."""
        self._thread.start()

    def close(self) -> None:
        """Decide nothing more."""
        self._wakes.put(STOP)
        self._thread.join(timeout=5.0)

    # Called by games, in the event loop or under a game's lock.

    @property
    def ready(self) -> bool:
        """See Players."""
        raise NotImplementedError

    def of_session(self) -> Player:
        """Return itself: all sessions are alike."""
        return self

    def join(self, agent: Agent) -> None:
        """See Player; any agent may play."""

    def credit(self, name: str, earned: Any) -> None:
        """See Player; nothing is learned from it."""

    def finish(self, whole: bool) -> None:
        """See Player; the ends of the agents' episodes are enough."""

    def decide(
        self, agent: Agent, observation: Tree, earned: Any, action_mask: np.ndarray | None = None
    ) -> asyncio.Future[Any]:
        """See Player."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Any] = loop.create_future()
        self._asked.append(Decide(agent, observation, earned, answer, action_mask))
        if not self._waking:
            self._waking = True
            loop.call_soon(self._wake)
        return answer

    def end(self, agent: Agent, earned: Any, last: Tree | None, action_mask: np.ndarray | None = None) -> None:
        """See Player."""
        self._asked.append(End(agent, earned, last, action_mask))
        self._wakes.put(WAKE)

    def abandon(self, agent: Agent) -> None:
        """See Player."""
        self._asked.append(End(agent, 0.0, None, abandoned=True))
        self._wakes.put(WAKE)

    def _wake(self) -> None:
        self._waking = False
        self._wakes.put(WAKE)

    # Called on the thread.

    def decide_all(self, asked: Sequence[Decide]) -> Sequence[Any]:
        """Return actions as the action space has them, by one forward pass; a ValueError for an agent without one."""
        raise NotImplementedError

    def end_all(self, ends: Sequence[End]) -> None:
        """End these agents' episodes."""
        raise NotImplementedError

    def after_pass(self) -> None:
        """Do further work once the games of a pass have their answers."""

    def _run(self) -> None:
        while self._wakes.get() is not STOP:
            while self._asked:
                self._pass([self._asked.popleft() for _ in range(min(len(self._asked), LARGEST_PASS))])

    def _pass(self, asked: list[Decide | End]) -> None:
        for part in _in_order(asked):
            decides = [one for one in part if isinstance(one, Decide)]
            ends = [one for one in part if isinstance(one, End)]
            try:
                self.end_all(ends)
            except Exception:  # other games decide all the same
                logger.exception("the ends of %d episodes could not be taken down", len(ends))
            try:
                actions = self.decide_all(decides) if decides else []
            except Exception as error:  # this pass failed; the next has other agents
                logger.exception("a forward pass of %d agents failed", len(decides))
                _tell(decides, error=error)
            else:
                _tell(decides, actions)
        self.after_pass()


def masks(asked: Sequence[Decide], space: gymnasium.Space[Any]) -> Tree:
    """Return the legal actions of agents that are to decide, as policies take them; without a mask all are legal."""
    every = Masks(space)
    legal = np.ones((len(asked), every.size), np.bool_)
    for row, one in enumerate(asked):
        if one.action_mask is not None:
            legal[row] = one.action_mask
    return every.tree(legal)


def _in_order(asked: list[Decide | End]) -> list[list[Decide | End]]:
    """Split requests into parts that may be done with ends first: in no part does an agent end after it decides."""
    parts: list[list[Decide | End]] = [[]]
    deciding: set[int] = set()
    for one in asked:
        if isinstance(one, Decide):
            deciding.add(id(one.agent))
        elif id(one.agent) in deciding:
            parts.append([])
            deciding.clear()
        parts[-1].append(one)
    return parts


def _tell(asked: Sequence[Decide], actions: Sequence[Any] = (), error: Exception | None = None) -> None:
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
            elif isinstance(actions[index], ValueError):
                one.answer.set_exception(actions[index])
            else:
                one.answer.set_result(actions[index])

    try:
        loop.call_soon_threadsafe(tell)
    except RuntimeError:  # the loop has closed: nothing waits
        return
