"""Best responses by learning: how much a policy, or a mixture of policies, can be beaten in a game of any size.

    responses = BestResponse(league, target, budget=200_000, seed=1)
    for decisions in responses.train(): ...               # one update after another
    play_deals(games, responses.side, target, 10_000, generator)

In each seat a policy begins with fresh weights, or those of a member of the target, and learns by the league's
algorithm against the target, which does not change. The policy's entropy bonus falls over the budget. It begins high,
so that the policy tries enough, and ends near 0, since a best response needs none. The mean gain of the two policies is
a lower bound of the target's exploitability.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any

import numpy as np
import torch

import envs
from agents import Batch, build_algorithm, build_policy
from agents.algorithms import ALGORITHMS
from agents.operators.schedules import build_timed
from agents.policies import Policy
from envs.two_player.vector_env import FinishedGames, TwoPlayerVectorEnv
from warren.errors import ConfigurationError
from workers.config.league import LeagueConfig
from workers.evaluation.duplicate_deals import SEATS, Side
from workers.rollout.games.seat_map import Opponent
from workers.rollout.games.selfplay_sampler import MatchSampler

PROGRESS = (0.0, 0.3, 0.8)  # parts of the budget, and the entropy bonus at each, level after the last
ENTROPY = (0.2, 0.04, 0.002)
LAST_RATE = 0.1  # share of the learning rate to which it falls over the budget
# Coefficients of what would keep a responder from the best response.
TIES = ("magnet_coefficient", "proximal_coefficient", "rnd_coefficient")
LEAST_UPDATES = 40  # updates per seat: a small budget is spent in smaller updates than the league's


class ResponseSampler(MatchSampler):
    """Games of a learning policy that always has one seat, against players drawn from a target before each game."""

    def __init__(
        self, games: TwoPlayerVectorEnv, policy: Policy, target: Side, seat: int, seed: int, **settings: Any
    ) -> None:
        super().__init__(games, policy, seed, tables=1, **settings)
        self.ended = 0  # games
        self._target, self._seat = target, seat
        self._drawing = torch.Generator().manual_seed(seed + 1)
        drawn = {1 + place: Opponent(place, player, seat=1 - seat) for place, player in enumerate(target.players)}  # type: ignore[arg-type]
        self.seating.known |= drawn
        self._seat_drawn(np.arange(games.num_envs))

    def _finish(self, finished: FinishedGames) -> None:
        super()._finish(finished)
        self._results.clear()  # kept for matches of a league, which these are not
        self.ended += len(finished.index)
        self._seat_drawn(finished.index)

    def _seat_drawn(self, slots: np.ndarray) -> None:
        self.seating.put(slots, 1 + self._target.draw(1 - self._seat, len(slots), self._drawing))


class Responder:
    """The policy of one seat, with the algorithm and the games that it learns by."""

    def __init__(
        self,
        league: LeagueConfig,
        target: Side,
        seat: int,
        budget: int,
        seed: int,
        settings: Any,
        initial: Policy | None = None,
        minimax: float = 0.0,
        falling: bool = True,
    ) -> None:
        """`falling`: the entropy bonus falls over the budget."""
        games = envs.make_two_player(league.env, league.games, seed, **league.env_kwargs)
        if initial is None:
            self.policy = build_policy(league.network, games.single_observation_space, games.single_action_space, seed)
        else:  # a policy of any network
            self.policy = deepcopy(initial).requires_grad_(True)
        self.algorithm = build_algorithm(settings["name"], settings, self.policy, seed, replay=False)
        self.sampler = ResponseSampler(
            games, self.policy, target, seat, seed, unroll_length=league.unroll_length,
            reward_scale=league.reward_scale, fields=self.algorithm.needs.fields, minimax=minimax,
        )  # fmt: skip
        self.steps = 0
        self._lanes = lanes(league, budget)
        self._budget = budget
        self._version, self._falling = 0, falling and settings["name"] in ALGORITHMS

    def learn(self) -> None:
        """Play games for one update and make it."""
        if self._falling:
            progress = self.steps / self._budget
            self.algorithm.adjust({"entropy_coefficient": float(np.interp(progress, PROGRESS, ENTROPY))})
        trajectory = self.sampler.collect(self._lanes)
        self.algorithm.update(Batch([trajectory]))
        self.steps += trajectory.num_steps
        self._version += 1
        self.sampler.load(self.policy.state_dict(), self._version, self.algorithm.behaviour())


class BestResponse:
    """A responder per seat; they learn in turn until each has spent half of `budget` decisions.

    `changes`: settings of the algorithm that replace those of the league. `initial`: weights to begin with in place of
    fresh ones. `minimax`: the part of the fall in the target's own value that each decision earns in addition.
    """

    def __init__(
        self,
        league: LeagueConfig,
        target: Side,
        budget: int,
        seed: int,
        changes: Mapping[str, Any] | None = None,
        initial: Policy | None = None,
        minimax: float = 0.0,
    ) -> None:
        if budget < SEATS:
            raise ConfigurationError(f"budget={budget} must be at least {SEATS} decisions")
        self.budget = budget
        given = dict(changes or {})
        settings, falling = responding(league, budget // SEATS) | given, "entropy_coefficient" not in given
        self.responders = [
            Responder(league, target, seat, budget // SEATS, seed + seat, settings, initial, minimax, falling)
            for seat in range(SEATS)
        ]
        of_each = lanes(league, budget // SEATS) * league.unroll_length
        self.updates = SEATS * -(-(budget // SEATS) // of_each)

    @property
    def steps(self) -> int:
        """Return the decisions learned from so far."""
        return sum(responder.steps for responder in self.responders)

    @property
    def games(self) -> int:
        """Return the games that have ended so far."""
        return sum(responder.sampler.ended for responder in self.responders)

    @property
    def side(self) -> Side:
        """Return both policies as one side, which plays the likeliest action, since no policy learns from its games."""
        return Side([responder.policy for responder in self.responders], np.eye(SEATS), greedy=True)

    def train(self) -> Iterator[int]:
        """Learn; yield the decisions so far after each update."""
        for update in range(self.updates):
            self.responders[update % SEATS].learn()
            yield self.steps


def responding(league: LeagueConfig, budget: int) -> dict[str, Any]:
    """Return the league's settings of its algorithm with schedules over `budget` decisions, and without ties.

    A teacher, a magnet, a tie to the last policy and a bonus would keep a responder from the best response.
    """
    settings = {"name": "ppo", **league.algorithm}
    if settings["name"] in ALGORITHMS:
        settings |= {"anneal_steps": budget, "anneal_to": LAST_RATE, "entropy_decay_steps": None, "teacher": None}
        settings |= {tie: 0.0 for tie in TIES if tie in settings}
        if "learning_rate" in settings:  # begin where the league's schedule does
            settings["learning_rate"] = build_timed(settings["learning_rate"], "learning_rate").at(0)
    return settings


def lanes(league: LeagueConfig, budget: int) -> int:
    """Return the number of trajectories per update for `budget` decisions: at most the league's `lanes`."""
    return max(1, min(league.lanes, budget // (LEAST_UPDATES * league.unroll_length)))
