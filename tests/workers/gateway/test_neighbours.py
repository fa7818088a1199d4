"""Several gateways behind one address."""

from __future__ import annotations

import json
import socket
from typing import Any

import pytest
import redis
from game_clients import Http

from warren.errors import ConfigurationError
from workers.gateway.neighbours import Neighbours
from workers.gateway.role import _check_port
from workers.gateway.server import Server


def test_a_session_of_another_gateway_is_sent_on_to_the_one_that_holds_it(
    gateways: Any, redis_url: str, run_name: str
) -> None:
    with redis.Redis.from_url(redis_url) as client:
        first, second = (gateways(shared=Neighbours(client, f"{run_name}:", 60)) for _ in range(2))
        here, there = (Http(gateway.server.own_port) for gateway in (first, second))
        assert here.game("a", "start")[0] == 200
        status, body, headers = there.ask(b"{}", game_id="a", step_kind="tick")
        assert (status, headers["location"]) == (307, f"http://127.0.0.1:{first.server.own_port}/")
        assert "is held by the gateway at" in json.loads(body)["error"]
        assert there.game("a", "start")[0] == 409
        assert here.game("a", "end")[0] == 200
        assert there.game("a", "start")[0] == 200
        assert here.game("a", "tick")[0] == 307


def test_sessions_go_on_while_redis_is_away(gateways: Any) -> None:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        nobody = redis.Redis(port=found.getsockname()[1])
        http = Http(gateways(shared=Neighbours(nobody, "x:", 60)).server.port)
        assert http.game("a", "start")[0] == http.game("a", "end")[0] == 200


def test_a_port_of_another_runs_gateway_is_not_shared(gateways: Any) -> None:
    gateway = gateways()
    other = Server(gateway.sessions, "127.0.0.1", 0, shared=True, facts=lambda: {"run": "theirs"}).start()
    try:
        _check_port("127.0.0.1", other.port, "theirs")
        with pytest.raises(ConfigurationError, match="is served by a gateway of run theirs"):
            _check_port("127.0.0.1", other.port, "ours")
    finally:
        other.stop()
