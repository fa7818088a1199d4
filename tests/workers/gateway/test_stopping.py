"""A gateway that is told to stop opens no session and gives open ones some time to end."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import Any

import pytest
import redis
from support.game_clients import Http, Tcp
from support.gateways import Echo
from support.waiting import until

from workers.gateway.limits import Limits
from workers.gateway.neighbours import Neighbours
from workers.gateway.protocol import Kind, Refusal, Request
from workers.gateway.sessions import Sessions

OBSERVATION = {"observation": [0, 1, 2]}


def stopping(gateway: Any, drain: float) -> threading.Thread:
    """Stop the gateway in a thread; wait until it drains."""
    thread = threading.Thread(target=gateway.server.stop, args=(drain,))
    thread.start()
    until(lambda: gateway.sessions.draining)
    return thread


def test_open_sessions_end_while_no_other_is_begun(gateways: Any) -> None:
    gateway = gateways()
    http, other, raw = Http(gateway.server.port), Http(gateway.server.port), Tcp(gateway.server.tcp_port)
    assert http.game("a", "start")[0] == other.game("b", "start")[0] == 200
    assert raw.ask(session="c", step_kind="start")[0]["status"] == "200"
    thread = stopping(gateway, 600.0)
    status, body, headers = other.ask(session="d", step_kind="auto")
    assert (status, headers["connection"]) == (503, "close") and b"is told to stop" in body
    other.connection.request("GET", "/health")
    assert other.connection.getresponse().status == 503
    assert http.game("a", "tick", OBSERVATION)[0] == 200
    assert http.game("a", "end") == http.game("b", "end") == (200, b"bye")
    assert thread.is_alive()
    assert raw.ask(session="c", step_kind="stop")[1] == b"bye"
    thread.join(60)
    assert not thread.is_alive() and gateway.server.failure is None


@pytest.mark.parametrize("hurried", [False, True])
def test_sessions_that_do_not_end_in_time_are_closed(gateways: Any, hurried: bool) -> None:
    gateway = gateways()
    assert Http(gateway.server.port).game("a", "start")[0] == 200
    thread = stopping(gateway, 600.0 if hurried else 0.2)
    if hurried:
        gateway.server.hurry()
    thread.join(60)
    assert not thread.is_alive() and len(gateway.sessions) == 0


@pytest.mark.parametrize("drains", [True, False])
def test_a_session_that_is_claimed_while_the_gateway_stops_is_not_opened(drains: bool) -> None:
    released, opened = list[str](), list[str]()

    async def stop_midway() -> int:
        asked, answered = asyncio.Event(), asyncio.Event()

        class Elsewhere:
            async def claim(self, session: str) -> None:
                asked.set()
                await answered.wait()

            def release(self, session: str) -> None:
                released.append(session)

        def open_game(session: str) -> Any:
            opened.append(session)
            return Echo(), SimpleNamespace()

        sessions = Sessions(open_game, Limits(), elsewhere=Elsewhere())  # type: ignore[arg-type]
        game = asyncio.ensure_future(sessions.answer(Request("a", Kind.start, b"")))
        await asyncio.wait_for(asked.wait(), 60.0)
        if drains:
            await asyncio.wait_for(sessions.drain(), 60.0)
        sessions.close()
        answered.set()
        with pytest.raises(Refusal, match="is told to stop"):
            await asyncio.wait_for(game, 60.0)
        return len(sessions)

    assert asyncio.run(stop_midway()) == 0
    assert (opened, released) == ([], ["a"])


def test_a_gateway_that_shares_its_port_leaves_it_to_the_others(gateways: Any, redis_url: str, run_name: str) -> None:
    with redis.Redis.from_url(redis_url) as client:
        first = gateways(shared=Neighbours(client, f"{run_name}:", 60))
        second = gateways(shared=Neighbours(client, f"{run_name}:", 60), port=first.server.port)
        own = Http(first.server.own_port)
        assert own.game("a", "start")[0] == 200
        thread = stopping(first, 600.0)
        for number in range(20):  # each on a connection of its own
            assert Http(first.server.port).game(f"{number}", "start")[0] == 200
        assert len(second.sessions) == 20
        assert Http(first.server.port).game("a", "tick")[0] == 307
        assert own.game("a", "end")[0] == 200
        thread.join(60)
        assert not thread.is_alive()
