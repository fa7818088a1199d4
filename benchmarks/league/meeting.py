"""The final mixtures of two sides against each other: how much better one population is than the other."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch

import envs
from benchmarks.league.curve import SHARES
from benchmarks.league.sides import LEAGUE, settings
from league.matchmaking.view import ModelRef
from workers.evaluation.duplicate_deals import Side, play_deals
from workers.runtime.league_policies import LeaguePolicies

DEALS = 8192


def kept(game: str, folder: Path) -> Side:
    """Return the mixture that `benchmarks.league.curve --keep` wrote."""
    made, policies = LeaguePolicies(settings(game, 1, LEAGUE)), []
    shares = np.array(json.loads((folder / SHARES).read_text()))
    for number in range(shares.shape[1]):
        data = (folder / f"{number}.safetensors").read_bytes()
        policies.append(made.frozen(ModelRef("main", number), data, str(folder)))
    return Side(policies, shares)


def relative_performance(game: str, one: Path, other: Path, deals: int = DEALS) -> float:
    """Return the mean return of the mixture kept in `one` against that in `other`, in points a game."""
    config = settings(game, 1, LEAGUE)
    games = envs.make_two_player(config.env, min(512, deals), 1, **config.env_kwargs)
    found = play_deals(games, kept(game, one), kept(game, other), deals, torch.Generator().manual_seed(1))
    return round(float(found.mean()), 5)
