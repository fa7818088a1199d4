"""The bound of requests per second from one address."""

from __future__ import annotations

import json
import urllib.request
from typing import Any

import pytest
from support.game_clients import Http, Tcp
from support.gateways import Gateway

from workers.config.gateway_checks import wrong_values
from workers.config.schema import GatewayConfig
from workers.gateway.protocol import Refusal
from workers.gateway.rates import REMEMBERED, Rates


def admitted(rates: Rates, address: str, tries: int) -> int:
    """Return how many of `tries` requests are admitted."""
    count = 0
    for _ in range(tries):
        try:
            rates.admit((address, 1))
            count += 1
        except Refusal as refusal:
            assert refusal.status == 429
    return count


def test_an_address_may_send_so_many_requests_per_second() -> None:
    now = [0.0]
    rates = Rates(10, lambda: now[0])
    assert [admitted(rates, "one", 15), admitted(rates, "two", 15)] == [10, 10]
    now[0] = 0.5
    assert admitted(rates, "one", 15) == 5
    now[0] = 60.0
    assert admitted(rates, "one", 15) == 10


def test_rates_below_one_request_per_second_work() -> None:
    now = [0.0]
    rates = Rates(0.5, lambda: now[0])
    assert admitted(rates, "one", 3) == 1
    now[0] = 2.0
    assert admitted(rates, "one", 3) == 1


def test_without_a_bound_any_number_may_come() -> None:
    assert admitted(Rates(None), "one", 10_000) == 10_000


def test_quiet_addresses_are_forgotten_and_busy_ones_are_not() -> None:
    now = [0.0]
    rates = Rates(2, lambda: now[0])
    for number in range(REMEMBERED):
        rates.admit((str(number), 1))
    now[0] = 2.0
    assert admitted(rates, "busy", 3) == 2
    for number in range(REMEMBERED):
        rates.admit((f"more {number}", 1))
    assert len(rates._seen) <= REMEMBERED + 1
    assert admitted(rates, "busy", 3) == 0


def test_a_gateway_refuses_requests_over_its_rate_but_not_health(gateways: Any) -> None:
    gateway: Gateway = gateways(rate=0.001)
    http, tcp = Http(gateway.server.port), Tcp(gateway.server.tcp_port)
    assert http.ask(session="a", step_kind="start")[0] == 200
    status, body, headers = http.ask(session="a", step_kind="end")
    assert (status, headers["retry-after"]) == (429, "1")
    assert "over 0.001 requests a second (gateway.max_rate)" in json.loads(body)["error"]
    assert tcp.ask(step_kind="end", session="a")[0]["status"] == "429"
    with urllib.request.urlopen(f"http://127.0.0.1:{gateway.server.port}/health", timeout=30) as answer:
        assert answer.status == 200


def test_games_that_post_to_health_are_counted_too(gateways: Any) -> None:
    connection = Http(gateways(rate=0.001).server.port).connection
    statuses = []
    for name in "ab":
        connection.request("POST", "/health", b"", {"session": name, "step_kind": "start"})
        with connection.getresponse() as reply:
            statuses.append(reply.status)
            reply.read()
    assert statuses == [200, 429]


def test_a_rate_of_zero_is_refused() -> None:
    assert [*wrong_values(GatewayConfig(max_rate=0.0))] == [
        "gateway.max_rate: 0.0 is not a rate; it must be more than 0 requests a second, or null"
    ]


@pytest.mark.parametrize("rate", [None, 5.0])
def test_a_rate_or_none_is_accepted(rate: float | None) -> None:
    assert [*wrong_values(GatewayConfig(max_rate=rate))] == []
