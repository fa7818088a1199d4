"""The settings of a run's league, its store in Redis, and its folders."""

from __future__ import annotations

from pathlib import Path

from league.redis.store import Store
from workers.config.league import LeagueConfig
from workers.config.run_names import run_folder
from workers.config.saved_settings import naming
from workers.config.schema import Config
from workers.runtime.session import Session


def league_of(config: Config) -> LeagueConfig:
    """Return the league's settings. Raises ConfigurationError for errors in them."""
    assert config.league is not None
    return LeagueConfig.from_dict(config.league)


def saved_settings(folder: Path, config: Config) -> LeagueConfig:
    """Return the settings of a league in a run folder. Raises ConfigurationError, which names the file, for errors."""
    return naming(folder / "config.yaml", lambda: league_of(config))


def store_of(session: Session, view_age: float = 0.0) -> Store:
    """Return the store of the league's state in Redis. `view_age`: s for which a view of it may be used again."""
    return Store(session.redis, f"{session.topology.key_prefix}league:", view_age=view_age)


def league_folder(config: Config) -> Path:
    """Return the folder in which the keeper saves the league's stream and models."""
    return run_folder(config) / "league"


def player_folder(config: Config, player: str) -> Path:
    """Return the folder of one learning player's checkpoints and metrics."""
    return run_folder(config) / "players" / player
