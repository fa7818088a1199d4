"""Tests of a role that starts while its servers are away: it waits for them, but a refusal ends it."""

from __future__ import annotations

import threading

import pytest
from support.own_redis import OwnRedis
from support.waiting import PATIENCE, until

from warren.errors import BrokerError, ServerAway
from workers.config.schema import BrokerConfig, Config
from workers.runtime.connect import connect, wait_for
from workers.servers import Servers, check_redis


def test_role_waits_for_a_redis_that_is_away(
    servers: Servers, own_redis: OwnRedis, caplog: pytest.LogCaptureFixture
) -> None:
    config = Config(broker=BrokerConfig(url=servers.broker_url, redis_url=own_redis.url))
    own_redis.kill()
    found: list[tuple[str, str]] = []
    role = threading.Thread(target=lambda: found.append(connect(config)), daemon=True)
    role.start()
    until(lambda: "waiting for it: Redis" in caplog.text, "the role's word that it waits")
    assert "is down: nothing listens there" in caplog.text
    assert found == []
    own_redis.start()
    role.join(PATIENCE)
    assert found == [(servers.broker_url, own_redis.url)]


@pytest.mark.parametrize("url", ["redis://127.0.0.1:1/0", "redis://no-such-host.invalid/0"])
def test_server_that_does_not_answer_is_away(url: str) -> None:
    with pytest.raises(ServerAway):
        check_redis(url, timeout=1.0)


def test_refusal_is_not_waited_out() -> None:
    tries = []

    def refuse() -> None:
        tries.append(1)
        raise BrokerError("the password is refused")

    with pytest.raises(BrokerError, match="the password is refused"):
        wait_for(refuse)
    assert len(tries) == 1


def test_tries_come_further_apart_and_are_not_all_logged(caplog: pytest.LogCaptureFixture) -> None:
    pauses: list[float] = []

    def away() -> None:
        if len(pauses) < 6:
            raise ServerAway("Redis is down")

    wait_for(away, pauses.append)
    assert pauses == [0.5, 1.0, 2.0, 4.0, 5.0, 5.0]
    assert caplog.text.count("waiting for it: Redis is down") == 1
