"""Where a run's league is: its keys in Redis, its folder, its settings."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import envs
from agents import build_policy
from agents.policies import Policy
from league.redis.store import Store
from workers.config.league import LeagueConfig
from workers.config.run_names import run_folder
from workers.config.schema import Config
from workers.runtime.session import Session


def league_of(config: Config) -> LeagueConfig:
    """The league's settings. Raises ConfigurationError for what is wrong in them."""
    assert config.league is not None
    return LeagueConfig.from_dict(config.league)


def store_of(session: Session, view_age: float = 0.0) -> Store:
    """The league's state in Redis."""
    return Store(session.redis, f"{session.topology.key_prefix}league:", view_age=view_age)


def league_folder(config: Config) -> Path:
    """Where the keeper saves the league: its stream and its models."""
    return run_folder(config) / "league"


def player_folder(config: Config, player: str) -> Path:
    """Checkpoints and metrics of one learning player."""
    return run_folder(config) / "players" / player


def policy_builder(league: LeagueConfig) -> Callable[[int], Policy]:
    """Makes policies for the league's game, with weights from the given seed."""
    games = envs.make_two_player(league.env, 1, 0, **league.env_kwargs)
    games.close()
    spaces = games.single_observation_space, games.single_action_space
    return lambda seed: build_policy(league.network, *spaces, seed)
