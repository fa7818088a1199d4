"""Steppers: the adapters' vectors, and bare loops over the libraries as a user would write them."""

from __future__ import annotations

import importlib.util
import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np

import envs
from envs.one_agent.legacy import convert_space

COPIES = 8
SEED = 7
DRAWN = 4096  # actions drawn beforehand, the same for both sides


class Missing(Exception):
    """Raised for a library that is not installed."""


class Stepper(ABC):
    """Eight copies; each call of `step` steps each of them once."""

    @abstractmethod
    def step(self) -> None: ...

    def close(self) -> None:  # noqa: B027 (most hold nothing)
        """Release the copies."""


Case = tuple[Callable[[], Stepper], Callable[[], Stepper]]  # through the adapter, bare


def drawn(space: gymnasium.Space[Any]) -> itertools.cycle[Any]:
    """Return a cycle of actions, one per copy, the same at each call."""
    space.seed(SEED)
    return itertools.cycle([np.stack([space.sample() for _ in range(COPIES)]) for _ in range(DRAWN // COPIES)])


class Adapted(Stepper):
    """One agent's environments as an actor steps them."""

    def __init__(self, settings: envs.EnvSettings) -> None:
        self.copies = envs.make_vector(settings, COPIES, SEED)
        self.copies.merges_infos = False
        self.actions = drawn(self.copies.single_action_space)
        self.copies.reset()

    def step(self) -> None:
        self.copies.step(next(self.actions))

    def close(self) -> None:
        self.copies.close()


def outcomes() -> tuple[np.ndarray, np.ndarray]:
    """Return arrays for the rewards and ends of a step."""
    return np.zeros(COPIES, np.float32), np.zeros(COPIES, np.bool_)


class Bare(Stepper):
    """One agent's environments by their own `reset` and `step`, of five values or old gym's four."""

    def __init__(self, make: Callable[[], Any], seen: Callable[[Any], Any] = lambda observation: observation) -> None:
        self.copies, self.seen = [make() for _ in range(COPIES)], seen
        one = self.copies[0]
        self.actions = drawn(convert_space(one.action_space))
        first = [self._reset(env) for env in self.copies]
        self.batch = np.stack(first)

    def _reset(self, env: Any) -> Any:
        found = env.reset()
        return self.seen(found[0] if isinstance(found, tuple) else found)

    def step(self) -> None:
        batch, (rewards, ends) = np.empty_like(self.batch), outcomes()
        for i, (env, action) in enumerate(zip(self.copies, next(self.actions), strict=True)):
            observation, rewards[i], over, *more = env.step(action)
            if over or (len(more) == 2 and more[0]):
                ends[i] = True
                batch[i] = self._reset(env)
            else:
                batch[i] = self.seen(observation)
        self.batch = batch

    def close(self) -> None:
        for env in self.copies:
            env.close()


class AdaptedGames(Stepper):
    """Two players' games as an actor steps them: one move per step."""

    def __init__(self, env_id: str, **kwargs: Any) -> None:
        self.games = envs.make_two_player(env_id, COPIES, SEED, **kwargs)
        self.chance = np.random.default_rng(SEED)
        self.turn = self.games.reset()

    def step(self) -> None:
        self.turn = self.games.step(masked(self.chance, self.turn.action_mask))

    def close(self) -> None:
        self.games.close()


def masked(chance: np.random.Generator, mask: np.ndarray) -> np.ndarray:
    """Draw a legal action for each game; both sides draw by this function."""
    legal: np.ndarray = (chance.random(mask.shape) * mask).argmax(axis=1)
    return legal


class BareStates(Stepper):
    """OpenSpiel's states: legal actions, the mover's observation, the move, chance's moves by their probabilities."""

    def __init__(self, name: str, **parameters: Any) -> None:
        pyspiel = importlib.import_module("pyspiel")
        self.game = pyspiel.load_game(name, parameters)
        self.informed = self.game.get_type().provides_information_state_tensor
        self.chance = np.random.default_rng(SEED)
        self.states = [self._start() for _ in range(COPIES)]

    def _start(self) -> Any:
        state = self.game.new_initial_state()
        self._past_chance(state)
        return state

    def _past_chance(self, state: Any) -> None:
        while state.is_chance_node():
            outcomes, probabilities = zip(*state.chance_outcomes(), strict=True)
            state.apply_action(int(self.chance.choice(outcomes, p=probabilities)))

    def step(self) -> None:
        seen = []
        mask = np.zeros((COPIES, self.game.num_distinct_actions()), bool)
        for i, state in enumerate(self.states):
            player = state.current_player()
            mask[i, state.legal_actions()] = True
            seen.append(state.information_state_tensor(player) if self.informed else state.observation_tensor(player))
        np.asarray(seen, np.float32)
        rewards, ends = outcomes()
        for i, action in enumerate(masked(self.chance, mask).tolist()):
            state = self.states[i]
            state.apply_action(action)
            self._past_chance(state)
            if state.is_terminal():
                rewards[i], ends[i] = state.returns()[0], True
                self.states[i] = self._start()


class BareAEC(Stepper):
    """PettingZoo's own loop: `last`, then `step`."""

    def __init__(self, full_id: str, **kwargs: Any) -> None:
        pettingzoo = importlib.import_module("pettingzoo")
        self.copies = [pettingzoo.make("aec", full_id, **kwargs) for _ in range(COPIES)]
        self.chance = np.random.default_rng(SEED)
        for env in self.copies:
            env.reset(seed=SEED)

    def step(self) -> None:
        seen, masks, (rewards, ends) = [], [], outcomes()
        for i, env in enumerate(self.copies):
            observation, rewards[i], over, cut, _ = env.last()
            if over or cut:
                ends[i] = True
                env.reset(seed=SEED)
                observation = env.observe(env.agent_selection)
            seen.append(observation["observation"])
            masks.append(observation["action_mask"])
        np.asarray(np.stack(seen), np.float32)
        for env, action in zip(self.copies, masked(self.chance, np.stack(masks)).tolist(), strict=True):
            env.step(action)

    def close(self) -> None:
        for env in self.copies:
            env.close()


class BareParallel(Stepper):
    """A PettingZoo parallel environment, or another whose `move` plays both; a step counts as half a move of both."""

    def __init__(
        self,
        make: Callable[[], Any],
        start: Callable[[Any], Any],
        move: Callable[[Any, int, int], tuple[Any, float, bool]],
        actions: int,
        dtype: type,
    ) -> None:
        """`move` returns both players' observation, the first one's reward and whether the game is over."""
        self.copies, self.start, self.move, self.dtype = [make() for _ in range(COPIES)], start, move, dtype
        self.chance = np.random.default_rng(SEED)
        self.mask = np.ones((COPIES, actions), bool)
        self.first: np.ndarray | None = None
        for env in self.copies:
            start(env)

    def step(self) -> None:
        chosen = masked(self.chance, self.mask)
        if self.first is None:
            self.first = chosen
            return
        first, self.first = self.first, None
        seen, (rewards, ends) = [], outcomes()
        for i, (env, one, other) in enumerate(zip(self.copies, first.tolist(), chosen.tolist(), strict=True)):
            both, rewards[i], over = self.move(env, one, other)
            if over:
                ends[i] = True
                both = self.start(env)
            seen.append(both)
        np.asarray(seen, self.dtype)

    def close(self) -> None:
        for env in self.copies:
            env.close()
