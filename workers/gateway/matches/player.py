"""The player of a league's gateway: each session's game is seated in a match, whose policies act for its agents."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from agents.policies import Policy
from agents.trajectories import Trajectory
from envs.games.gamecore_games import Sides
from warren.trees import Tree, map_tree, take
from workers.gateway.agent_state import AgentState, remembered
from workers.gateway.experience import Experience
from workers.gateway.game import Agent
from workers.gateway.matches.seating import Seating
from workers.gateway.matches.tables import Seat
from workers.gateway.passes import Decide, End, Passes, masks
from workers.gateway.sampler import HELD, PATIENCE
from workers.runtime.timing import Timing

logger = logging.getLogger(__name__)


class SeatedGames:
    """A Player of one session; each of its games is seated in a match at the game's first decision."""

    def __init__(self, player: MatchPlayer, seating: Seating, sides: Sides) -> None:
        self._player, self._seating, self._sides = player, seating, sides
        self._side_of = {agent: number for number, side in enumerate(sides) for agent in side}
        self._seat: Seat | None = None
        self._returns = np.zeros(len(sides))  # each side's, in the game under way

    def join(self, agent: Agent) -> None:
        """See Player. Raises ValueError for an agent of no side, Refusal if there is no match."""
        side = self._side(agent.name)
        if self._seat is None:
            self._seat = self._seating.take()
        agent.by = self._seat.by(side)

    def credit(self, name: str, earned: Any) -> None:
        """See Player: it counts for the result. Raises ValueError for an agent of no side."""
        self._returns[self._side(name)] += earned

    def decide(
        self, agent: Agent, observation: Tree, earned: Any, action_mask: np.ndarray | None = None
    ) -> asyncio.Future[Any]:
        """See Player."""
        assert self._seat is not None
        self.credit(agent.name, earned)
        if isinstance(agent.by, Experience):
            self._seat.decisions += 1
        return self._player.decide(agent, observation, earned, action_mask)

    def end(self, agent: Agent, earned: Any, last: Tree | None, action_mask: np.ndarray | None = None) -> None:
        """See Player."""
        self.credit(agent.name, earned)
        self._player.end(agent, earned, last, action_mask)

    def abandon(self, agent: Agent) -> None:
        """See Player."""
        self._player.abandon(agent)

    def finish(self, whole: bool) -> None:
        """See Player: a game that went away has no result."""
        seat, self._seat = self._seat, None
        returns, self._returns = self._returns, np.zeros(len(self._sides))
        if seat is not None:  # else no decision was made
            a_player = returns / [len(side) for side in self._sides]
            self._seating.leave(seat, a_player if whole else None)

    def _side(self, name: str) -> int:
        side = self._side_of.get(name)
        if side is None:
            raise ValueError(f"agent {name!r}: is of no side; the class declares sides of {', '.join(self._side_of)}")
        return side


class MatchPlayer(Passes):
    """Decides for the agents of all sessions, by one forward pass for each model that is to act.

    `changed` guards the experience of all learning players.
    """

    def __init__(
        self, seating: Seating, sides: Sides, trajectories: int, seed: int, timing: Timing, patience: float = PATIENCE
    ) -> None:
        """`trajectories`: number in a segment; HELD segments of each player may wait to be taken."""
        super().__init__()
        self.changed = threading.Condition()
        self.generator = torch.Generator().manual_seed(seed)
        self._seating, self._sides, self._most = seating, sides, HELD * trajectories
        self._timing, self._patience = timing, patience
        self._closed = self._dropping = False
        self.start()

    @property
    def ready(self) -> bool:
        """See Players."""
        return self._seating.ready

    def of_session(self) -> SeatedGames:
        """See Players."""
        return SeatedGames(self, self._seating, self._sides)

    def take(self, experience: Experience, count: int) -> Trajectory:
        """Return `count` complete trajectories; games that wait for this go on."""
        with self.changed:
            self._dropping = False
            self.changed.notify_all()
            return experience.take(count)

    def close(self) -> None:
        """Decide nothing more."""
        with self.changed:
            self._closed = True
            self.changed.notify_all()
        super().close()

    # The policies' thread.

    def decide_all(self, asked: Sequence[Decide]) -> Sequence[Any]:
        """See Passes."""
        began = time.perf_counter()
        actions: list[Any] = [None] * len(asked)
        models: dict[int, list[int]] = {}
        for row, one in enumerate(asked):
            models.setdefault(id(one.agent.by), []).append(row)
        for rows in models.values():
            by, part = asked[rows[0]].agent.by, [asked[row] for row in rows]
            decided = by.decide(part) if isinstance(by, Experience) else self._opponent(by, part)
            for row, action in zip(rows, decided, strict=True):
                actions[row] = action
        self._timing.add("policies: decide", time.perf_counter() - began)
        return actions

    def _opponent(self, policy: Policy, asked: Sequence[Decide]) -> Sequence[Any]:
        """Return the actions of agents that are played by `policy`, which does not learn."""
        observation = map_tree(lambda *parts: np.stack(parts), *(one.observation for one in asked))
        states = [AgentState.of(one.agent) for one in asked]
        with torch.inference_mode():
            memory = remembered(policy.initial_memory(len(asked)), states)
        legal = masks(asked, policy.action_space)
        acted = policy.step(observation, memory, action_mask=legal, generator=self.generator, value=False)
        for row, state in enumerate(states):
            state.memory = take(acted.memory, row)
        actions = policy.env_action(acted.action)
        return [take(actions, row) for row in range(len(asked))]

    def end_all(self, ends: Sequence[End]) -> None:
        """See Passes."""
        learning: dict[int, list[End]] = {}
        for one in ends:
            if isinstance(one.agent.by, Experience):
                learning.setdefault(id(one.agent.by), []).append(one)
            else:
                one.agent.state = None
        for part in learning.values():
            part[0].agent.by.end(part)

    def after_pass(self) -> None:
        """Wait while all players have more complete trajectories than may wait; drop the oldest beyond that of each.

        Games do not wait for one learner of several.
        """
        with self.changed:
            held = [one for one in self._seating.experiences() if one.ready > self._most]
            if not held:
                return

            def all_full() -> bool:
                return all(one.ready > self._most for one in self._seating.experiences())

            if not self._dropping and all_full():
                self.changed.wait_for(lambda: self._closed or not all_full(), self._patience)
            dropped = 0 if self._closed else sum(one.drop_beyond(self._most) for one in held)
            if dropped and not self._dropping:
                logger.warning("learners take less than is played: the oldest decisions are dropped")
            self._dropping |= dropped > 0
