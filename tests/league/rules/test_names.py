"""Names of players: each is also the name of a folder and of files, and a part of keys."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from league.models.pool import Pool
from league.redis.store import Store
from league.rules.names import NAME
from warren.errors import ConfigurationError, PlayerError, PoolError
from workers.config.league import LeagueConfig

OUTSIDE = ("..", ".", "../main", "a/b", "", "a b", "main\n", "x" * 101)


@pytest.mark.parametrize("name", OUTSIDE)
def test_a_wrong_name_is_refused_wherever_a_player_is_named(name: str) -> None:
    assert not NAME.fullmatch(name)
    with pytest.raises(ConfigurationError, match=r"neither '\.' nor '\.\.'"):
        LeagueConfig.from_dict({"env": "matrix:rps", "players": {name: {"kind": "pfsp"}}})
    client: Any = SimpleNamespace(register_script=lambda text: None)
    with pytest.raises(PlayerError, match=r"neither '\.' nor '\.\.'"):
        Store(client, "league:").add_player(name, "pfsp")
    with pytest.raises(PoolError, match=r"neither '\.' nor '\.\.'"):
        Pool(client, "run:").put(name, 0, 0, b"weights")


@pytest.mark.parametrize("name", ["main", "main.2", "...", "-", "1e3", "x" * 100])
def test_other_names_are_accepted(name: str) -> None:
    assert NAME.fullmatch(name)
