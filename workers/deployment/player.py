"""Player of the games of a deployed policy: forward passes by a backend, which may be replaced meanwhile."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from envs.rewards import Rewards
from warren.trees import map_tree, take
from workers.gateway.agent_state import AgentState, remembered
from workers.gateway.passes import Decide, End, Passes, masks
from workers.models.backends import Backend

EPISODES = 100  # finished episodes of which the mean return is taken


class DeployedPlayer(Passes):
    """A Player (workers/gateway/game.py) that learns nothing; `swap` gives it its first backend and each later one.

    A game that is under way when backends are swapped keeps its memory, as games of a training gateway do when new
    weights arrive.
    """

    def __init__(self, rewards: Rewards, mode: str, seed: int) -> None:
        """`mode`: that of Policy.step; `seed`: that of the generator that draws actions."""
        super().__init__()
        self.version = -1
        self.decisions = self.passes = self.episodes = 0
        self.seconds = 0.0  # in forward passes
        self._rewards, self._mode = rewards, mode
        self._generator = torch.Generator().manual_seed(seed)
        self._backend: Backend | None = None
        self._returns: deque[float] = deque(maxlen=EPISODES)
        self._lock = threading.Lock()  # guards the backend
        self.start()

    @property
    def ready(self) -> bool:
        """Return True once it has a backend."""
        return self._backend is not None

    @property
    def mean_return(self) -> float | None:
        """Return the mean return of the last 100 episodes; None before one has ended."""
        return float(np.mean(self._returns)) if self._returns else None

    def swap(self, backend: Backend, version: int) -> None:
        """Decide by `backend`, whose weights are of `version`, from the next pass on."""
        with self._lock:
            self._backend, self.version = backend, version

    def decide_all(self, asked: Sequence[Decide]) -> Sequence[Any]:
        """See Passes."""
        began = time.perf_counter()
        observation = map_tree(lambda *parts: np.stack(parts), *(one.observation for one in asked))
        players = [AgentState.of(one.agent) for one in asked]
        with self._lock:
            backend = self._backend
            assert backend is not None
            memory = remembered(backend.initial_memory(len(asked)), players)
            legal = None
            if any(one.action_mask is not None for one in asked):
                legal = masks(asked, backend.policy.action_space)
            action, memory = backend.act(observation, memory, self._mode, self._generator, legal)
        actions = backend.policy.env_action(action)
        for row, (one, player) in enumerate(zip(asked, players, strict=True)):
            player.earn(self._rewards, one.earned)
            player.memory = take(memory, row)
        self.decisions += len(asked)
        self.passes += 1
        self.seconds += time.perf_counter() - began
        return [take(actions, row) for row in range(len(asked))]

    def end_all(self, ends: Sequence[End]) -> None:
        """See Passes."""
        for one in ends:
            player, one.agent.state = one.agent.state, None
            if player is not None and not one.abandoned:
                player.earn(self._rewards, one.earned)
                self.episodes += 1
                self._returns.append(float(self._rewards.total(player.returns)))
