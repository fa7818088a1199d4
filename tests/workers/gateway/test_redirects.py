"""A gateway's own address and port, to which redirects lead."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest
from support.game_clients import Http

from warren.errors import ConfigurationError
from workers.config.schema import GatewayConfig
from workers.gateway.front import own_address, own_port, warn_of_redirects
from workers.gateway.server import Server
from workers.servers.ports import free_port


@pytest.mark.parametrize(
    ("settings", "address"),
    [
        ({}, "http://127.0.0.1:1234"),
        ({"address": "::1"}, "http://[::1]:1234"),
        ({"address": "::"}, "http://[::1]:1234"),
        ({"address": "0.0.0.0"}, "http://127.0.0.1:1234"),
        ({"address": "0.0.0.0", "public": "games.example.org"}, "http://games.example.org:1234"),
        ({"address": "::", "public": "2001:db8::7"}, "http://[2001:db8::7]:1234"),
    ],
)
def test_an_own_address_is_a_url(settings: dict[str, Any], address: str) -> None:
    server: Any = SimpleNamespace(own_port=1234)
    assert own_address(GatewayConfig(**settings), server) == address


def test_redirects_that_lead_games_to_themselves_are_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "workers.gateway.front"):
        warn_of_redirects(GatewayConfig())
        warn_of_redirects(GatewayConfig(address="0.0.0.0", public="games.example.org"))
        assert not caplog.records
        warn_of_redirects(GatewayConfig(address="0.0.0.0"))
    assert "set gateway.public" in caplog.text


def test_own_ports_follow_the_first() -> None:
    assert [own_port(GatewayConfig(own_port=9000), place) for place in (0, 3)] == [9000, 9003]
    assert own_port(GatewayConfig(), 3) == 0
    with pytest.raises(ConfigurationError, match=r"gateway\.own_port: 65535 plus 1 is not a port"):
        own_port(GatewayConfig(own_port=65535), 1)


def test_a_gateway_listens_on_the_own_port_that_it_is_given(gateways: Any) -> None:
    port = free_port()
    server = Server(gateways().sessions, "127.0.0.1", 0, shared=True, own_port=port).start()
    try:
        assert server.own_port == port and Http(port).facts()["sessions"] == 0
        with pytest.raises(ConfigurationError, match=rf"gateway\.own_port: 127\.0\.0\.1 port {port} cannot be used"):
            Server(gateways().sessions, "127.0.0.1", 0, shared=True, own_port=port)
    finally:
        server.stop()
