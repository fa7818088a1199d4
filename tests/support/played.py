"""Recorded matches that samplers and policies play as in a league."""

from __future__ import annotations

from typing import Any

import torch

import envs
from agents import build_policy
from agents.checkpoints import fingerprint
from agents.policies import Policy
from workers.replays.match_record import NTH, RecordedMatch
from workers.rollout.games.game_log import Weights
from workers.rollout.games.selfplay_sampler import MatchSampler, Opponent

NETWORK = {"name": "mlp", "hidden_sizes": [16]}


def policy_for(env: str, seed: int, network: dict[str, Any] = NETWORK) -> Policy:
    """Return a policy with large random weights, which clearly prefers some moves to others."""
    policy = build_policy(network, *envs.spaces(env), seed)
    with torch.no_grad():
        for weights in policy.parameters():
            weights.mul_(4.0)
    return policy


def play_match(
    env: str, away_is_home: bool = False, network: dict[str, Any] = NETWORK
) -> tuple[RecordedMatch, dict[Weights, Policy]]:
    """Play a match of about 20 games while the home player's weights change; return it, and all weights that played."""
    games = envs.make_two_player(env, 8, seed=1)
    home, away = policy_for(env, 1, network), policy_for(env, 2, network)
    sampler = MatchSampler(games, home, seed=3, unroll_length=4, player="main")
    sampler.seat(0, Opponent("m1", None if away_is_home else away, recorded=True))
    away_weights = None if away_is_home else Weights("main@0", 0, fingerprint(away))
    kept: dict[Weights, Policy] = {} if away_weights is None else {away_weights: away}
    played: list[Any] = []
    version = 0
    while len(played) < 20:
        if version < 6:  # during games
            weights = policy_for(env, 10 + version, network)
            kept[Weights("main", version, fingerprint(weights))] = weights
            sampler.load(weights.state_dict(), version)
            version += 1
        for _ in range(5):
            sampler.advance()
        played += [game for result in sampler.pop_results() for game in result.games]
    record = RecordedMatch(
        "m1", (NTH,), env, {}, "main", "main" if away_is_home else "main@0", away_weights, 1, "", 1.5, "actor-0",
        tuple(played),
    )  # fmt: skip
    return record.with_outcomes(), kept
