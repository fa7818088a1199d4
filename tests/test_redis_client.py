"""Tests of URLs of Redis, and of the one module that makes clients from them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import redis

from warren import redis_client
from warren.errors import ConfigurationError
from warren.redis_client import SentinelURL
from workers.servers.checks import redact

ROOT = Path(__file__).resolve().parents[1]


def test_every_client_is_made_where_all_urls_are_read() -> None:
    sources = [path for package in ("tasks", "league", "workers") for path in (ROOT / package).rglob("*.py")]
    assert [path for path in sources if re.search(r"Redis\.from_url|Sentinel\(", path.read_text())] == []


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("redis://:secret@there:7000/2", {"host": "there", "port": 7000, "db": 2, "password": "secret"}),
        ("unix:///run/redis?db=3", {"path": "/run/redis", "db": 3}),
        ("redis+socket:///run/redis?virtual_host=3", {"path": "/run/redis", "db": 3}),
    ],
)
def test_a_url_of_one_redis_is_read_by_redis_py(url: str, expected: dict[str, object]) -> None:
    found = redis_client.connect(url).connection_pool.connection_kwargs
    assert expected.items() <= found.items()
    assert redis_client.connect_to_replica(url) is None


def test_a_url_of_sentinels_names_their_addresses_the_service_and_its_database() -> None:
    read = SentinelURL.read("sentinel://us%65r:p%40ss@one:1,[fe80::2]:2;three/main-1/4?sentinel_password=own")
    assert read.hosts == (("one", 1), ("fe80::2", 2), ("three", 26379))
    assert (read.service, read.db, read.username, read.password) == ("main-1", 4, "user", "p@ss")
    assert read.own == {"password": "own"}
    assert SentinelURL.read("redis+sentinel://one/main") == SentinelURL((("one", 26379),), "main")
    assert "p@ss" not in repr(read) and "own" not in repr(read)
    assert str(read) == "sentinel://one:1,[fe80::2]:2,three:26379/main-1/4"


@pytest.mark.parametrize(
    "url",
    ["sentinel://one:1", "sentinel://one:port/main/0", "sentinel://:hunter2@one:1/0;sentinel://two:2/0",
     "sentinel://:hunter2@/main/0", "sentinel://one/main/zero", "sentinel://one/main/0?ssl=true"],
)  # fmt: skip
def test_errors_in_a_url_of_sentinels_show_no_password(url: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        redis_client.connect(url)
    assert "hunter2" not in str(error.value)
    assert "SERVICE" in str(error.value) or "ssl" in str(error.value)


def test_a_shown_url_of_sentinels_hides_its_passwords() -> None:
    assert redact("sentinel://:hunter2@one:1,two:2/main/0?sentinel_password=hunter3") == (
        "sentinel://:***@one:1,two:2/main/0?sentinel_password=***"
    )


def test_waiting_for_redis_is_bounded_by_tries_or_once_hurried_by_time() -> None:
    tried: list[str] = []

    class Away(redis.Connection):
        def _connect(self) -> Any:
            tried.append("once more")
            raise redis.ConnectionError("refused")

    patience = redis_client.Patience(tries=2)
    client = redis.Redis(connection_pool=redis.ConnectionPool(Away, retry=patience))
    with pytest.raises(redis.ConnectionError, match="refused"):
        client.ping()
    waited = len(tried)
    assert waited > 2
    patience.hurry(0.0)
    with pytest.raises(redis.ConnectionError, match="refused"):
        client.ping()
    assert len(tried) == waited + 1, "tried again after the time was over"
    with pytest.raises(redis.ConnectionError, match="Redis is away, and this process ends without it"):
        client.ping()
    assert len(tried) == waited + 1, "tried to connect after giving up"


def test_a_hurried_client_uses_a_redis_that_is_there(redis_url: str) -> None:
    patience = redis_client.Patience(tries=2)
    patience.hurry(0.0)
    assert redis_client.connect(redis_url, retry=patience).ping()
