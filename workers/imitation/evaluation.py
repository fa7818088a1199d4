"""Measures of a clone: how often it decides as recorded, in games that it has not seen, and its returns in play."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

import envs
from agents.algorithms.batches import Batch
from agents.policies import Policy
from envs import EnvSettings
from warren.trees import leaves
from workers.config.league import LeagueConfig
from workers.evaluation.duplicate_deals import Side, play_deals
from workers.evaluation.episodes import Episodes
from workers.imitation.feed import Feed


@dataclass(frozen=True)
class Likelihood:
    """The mean log-probability of recorded decisions, and the share that the clone makes the same; None for floats."""

    log_probability: float
    same: float | None

    def __str__(self) -> str:
        same = "" if self.same is None else f", {self.same:.1%} decided the same"
        return f"log-probability {self.log_probability:.3f}{same}"


def likelihood(policy: Policy, feed: Feed) -> Likelihood:
    """Return the likelihood under `policy` of the decisions in one pass over recorded games."""
    total, same, count, counted = 0.0, 0.0, 0, True
    for trajectory in feed.of_pass(0):
        batch = Batch(policy, [trajectory])
        with torch.no_grad():
            if batch.begins is None:
                said = policy.evaluate(batch.observation, batch.action, batch.action_mask)
            else:
                said, _ = policy.unroll(batch.observation, batch.memory, batch.begins, batch.action, batch.action_mask)
            likeliest = policy.distribution.mode(said.output)
        agreeing = torch.ones_like(said.log_prob, dtype=torch.bool)
        for (_, ours), (_, theirs) in zip(leaves(likeliest), leaves(batch.action), strict=True):
            counted = counted and not ours.is_floating_point()
            equal = ours == theirs
            agreeing &= equal.flatten(agreeing.dim()).all(-1) if equal.dim() > agreeing.dim() else equal
        total, count = total + float(said.log_prob.sum()), count + said.log_prob.numel()
        same += float(agreeing.sum())
    return Likelihood(total / count, same / count if counted else None)


def episode_returns(policy: Policy, settings: EnvSettings, count: int, copies: int, seed: int) -> np.ndarray:
    """Play `count` whole episodes by the likeliest actions, in `copies` environments; return float64 [count]."""
    episodes = Episodes(settings, count, copies, seed)
    try:
        return episodes.play(policy)[:, 0]
    finally:
        episodes.close()


def returns_against_chance(policy: Policy, league: LeagueConfig, games: int, seed: int) -> np.ndarray:
    """Play a league's game against uniformly drawn moves; return the returns, float64 [games], `games` made even.

    Each deal is played in both seats.
    """
    deals = -(-games // 2)
    env = envs.make_two_player(league.env, min(deals, league.evaluation_games), seed, **league.env_kwargs)
    try:
        generator = torch.Generator().manual_seed(seed)
        return play_deals(env, Side.of(policy), Side.of(None), deals, generator).ravel()
    finally:
        env.close()
