"""Sides of games from run folders: a player as it was saved, or the Nash mixture of a league's frozen players."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

import envs
from agents.policies import Policy
from league.matchmaking import played
from league.models.saved_files import model_bytes
from warren.errors import ConfigurationError
from workers.config.league import LeagueConfig
from workers.config.schema import from_yaml
from workers.evaluation.by_settings import evaluator_of
from workers.evaluation.duplicate_deals import Side
from workers.evaluation.report import saved
from workers.runtime.league_paths import saved_settings
from workers.runtime.league_policies import LeaguePolicies
from workers.runtime.trained import load, run_in

MIXTURE = "mixture"
LEAST_SHARE = 1e-4  # a member with a smaller share changes nothing that can be measured


@dataclass(frozen=True)
class SavedSide:
    """A side whose `policies` [K] and shares are known, and its `name` for people."""

    name: str
    policies: list[Policy]
    shares: np.ndarray  # float64 [2, K]

    @property
    def side(self) -> Side:
        """Return the side as it plays games."""
        return Side(self.policies, self.shares)


def league_in(folder: Path) -> tuple[Path, LeagueConfig]:
    """Return (run folder, settings) of the league in `folder`, or in its newest run.

    Raises ConfigurationError if there is none.
    """
    folder = run_in(folder)
    config = from_yaml(folder / "config.yaml")
    if config.league is None:
        raise ConfigurationError(f"{folder} is a run of one agent; name that of a league, as in runs/kuhn/TRIAL")
    return folder, saved_settings(folder, config)


def player_of(folder: Path, player: str) -> SavedSide:
    """Return a player of a league's run: the newest checkpoint of one that learned, or a frozen model.

    Raises what workers.runtime.trained.load raises.
    """
    return SavedSide(player, [load(folder, player).policy], np.ones((2, 1)))


def mixture_of(folder: Path, league: LeagueConfig) -> SavedSide:
    """Return the Nash mixture of the frozen players in a run folder, on the returns that evaluators measured.

    Raises LeagueError if no league was saved, ConfigurationError if it has no frozen player, CheckpointError for a
    model that is missing or damaged.
    """
    history, returns = saved(folder)
    roster = history.state.roster
    slots = roster.historical
    if not len(slots):
        raise ConfigurationError(
            f"{folder}: its league has no frozen player yet; use --player main, or another that learns"
        )
    games = envs.make_two_player(league.env, 1, 0, **league.env_kwargs)
    policies = LeaguePolicies(league)

    def policy_of(slot: int) -> Policy:
        model = roster.by_slot[slot].model
        assert model is not None  # a frozen player has one
        data, path = model_bytes(folder / "league", model)
        return policies.frozen(model, data, str(path))

    shares = evaluator_of(league, games, returns, policy_of, 0).mixture(slots, played(roster, slots))
    held = np.flatnonzero(shares.max(axis=0) > LEAST_SHARE)
    shares = shares[:, held] / shares[:, held].sum(axis=1, keepdims=True)
    name = f"the Nash mixture of {len(held)} of {len(slots)} frozen players"
    return SavedSide(name, [policy_of(int(slots[place])) for place in held], shares)
