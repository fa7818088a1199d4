"""The mixtures that two sides ended with, against each other: how much better one population is than the other."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch

import envs
from agents.checkpoints import load_weights, weights_from_bytes
from benchmarks.league.curve import SHARES
from benchmarks.league.sides import LEAGUE, settings
from workers.evaluation.duplicate_deals import Side, play_deals
from workers.runtime.league_paths import policy_builder

DEALS = 8192


def kept(game: str, folder: Path) -> Side:
    """Return the mixture that `benchmarks.league.curve --keep` wrote."""
    build, policies = policy_builder(settings(game, 1, LEAGUE)), []
    shares = np.array(json.loads((folder / SHARES).read_text()))
    for number in range(shares.shape[1]):
        policy = build(0).requires_grad_(False)
        load_weights(policy, weights_from_bytes((folder / f"{number}.safetensors").read_bytes())[0], str(folder))
        policies.append(policy)
    return Side(policies, shares)


def relative_performance(game: str, one: Path, other: Path, deals: int = DEALS) -> float:
    """Return the mean return of the mixture kept in `one` against that in `other`, in points a game."""
    config = settings(game, 1, LEAGUE)
    games = envs.make_two_player(config.env, min(512, deals), 1, **config.env_kwargs)
    found = play_deals(games, kept(game, one), kept(game, other), deals, torch.Generator().manual_seed(1))
    return round(float(found.mean()), 5)
