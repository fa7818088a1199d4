"""Several gateways behind one address."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest
import redis
from support.game_clients import Http
from support.gateways import Echo

from warren.errors import ConfigurationError
from workers.gateway.front import _check_port
from workers.gateway.neighbours import Neighbours
from workers.gateway.server import Server

OBSERVATION = {"observation": [0, 1, 2]}
TICK = json.dumps(OBSERVATION).encode()
HOLDER = """
import asyncio, sys, redis
from workers.gateway.neighbours import Neighbours
url, prefix, *sessions = sys.argv[1:]
neighbours = Neighbours(redis.Redis.from_url(url), prefix, 60)
neighbours.enter("http://192.0.2.1:8000")
async def claim():
    return [await neighbours.claim(session) for session in sessions]
print(asyncio.run(claim()), flush=True)
sys.stdin.read()
"""


class Counted(Echo):
    """Counts its objects."""

    made: ClassVar[int] = 0

    def __init__(self) -> None:
        Counted.made += 1


@contextlib.contextmanager
def holder(url: str, prefix: str, *sessions: str) -> Iterator[subprocess.Popen[str]]:
    """Start a process that holds these sessions as a gateway does."""
    command = [sys.executable, "-c", HOLDER, url, prefix, *sessions]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert json.loads(process.stdout.readline().replace("None", "null")) == [None] * len(sessions)
            yield process
        finally:
            process.kill()


def test_a_session_of_another_gateway_is_redirected_to_it(gateways: Any, redis_url: str, run_name: str) -> None:
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


def test_auto_of_a_session_of_another_gateway_is_redirected(gateways: Any, redis_url: str, run_name: str) -> None:
    with redis.Redis.from_url(redis_url) as client:
        first, second = (gateways(Counted, shared=Neighbours(client, f"{run_name}:", 60)) for _ in range(2))
        here, there = (Http(gateway.server.own_port) for gateway in (first, second))
        assert here.ask(TICK, session="a", step_kind="auto")[0] == 200
        made = Counted.made
        status, _, headers = there.ask(TICK, session="a", step_kind="auto")
        assert (status, headers["location"]) == (307, f"http://127.0.0.1:{first.server.own_port}/")
        assert Counted.made == made, "no actor is made for a session of another gateway"
        assert here.ask(TICK, session="a", step_kind="auto")[0] == 200
        assert len(second.sessions) == 0


def test_sessions_of_a_gateway_that_was_killed_are_free_at_once(gateways: Any, redis_url: str, run_name: str) -> None:
    with redis.Redis.from_url(redis_url) as client, holder(redis_url, f"{run_name}:", "a", "b", "c") as other:
        http = Http(gateways(shared=Neighbours(client, f"{run_name}:", 60)).server.port)
        assert http.game("a", "tick")[0] == 307
        status, body = http.game("b", "start")
        assert status == 409 and "at the gateway at http://192.0.2.1:8000" in json.loads(body)["error"]
        other.kill()
        other.wait()
        assert http.game("a", "tick")[0] == 404
        assert http.game("b", "start")[0] == 200
        assert http.ask(TICK, session="c", step_kind="auto")[0] == 200


def test_sessions_of_a_silent_gateway_elsewhere_are_free_when_its_lease_ends(
    gateways: Any, redis_url: str, run_name: str
) -> None:
    with redis.Redis.from_url(redis_url) as client:
        http = Http(gateways(shared=Neighbours(client, f"{run_name}:", 60)).server.port)
        far, prefix = "http://192.0.2.1:8000 0123", f"{run_name}:gateway:"
        client.set(f"{prefix}a", far)
        client.set(f"{prefix}lease:{far}", json.dumps({"host": "far", "pid": 1, "space": "far", "token": "x"}))
        assert http.game("a", "start")[0] == 409
        client.delete(f"{prefix}lease:{far}")  # the lease runs out
        assert http.game("a", "tick")[0] == 404 and http.game("a", "start")[0] == 200


def test_a_session_that_another_gateway_has_taken_is_closed(gateways: Any, redis_url: str, run_name: str) -> None:
    with redis.Redis.from_url(redis_url) as client:
        gateway = gateways(shared=Neighbours(client, f"{run_name}:", 60))
        http = Http(gateway.server.port)
        assert http.game("a", "start")[0] == http.game("b", "start")[0] == 200
        client.set(f"{run_name}:gateway:a", "http://192.0.2.1:8000 0123")
        asyncio.run_coroutine_threadsafe(gateway.sessions.look(), gateway.server._loop).result(30)
        assert http.game("a", "tick", OBSERVATION)[0] == 404 and http.game("b", "tick", OBSERVATION)[0] == 200
        assert client.get(f"{run_name}:gateway:a") == b"http://192.0.2.1:8000 0123", "only the holder removes its claim"


def test_a_redis_before_version_7_keeps_sessions(
    gateways: Any, redis_url: str, run_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Redis before version 7 has no SET with both NX and GET."""
    execute = redis.Redis.execute_command

    def refuse(client: redis.Redis, *args: Any, **options: Any) -> Any:
        if args[0] == "SET" and "NX" in args and "GET" in args:
            raise redis.ResponseError("syntax error")
        return execute(client, *args, **options)

    monkeypatch.setattr(redis.Redis, "execute_command", refuse)
    with redis.Redis.from_url(redis_url) as client:
        first, second = (gateways(shared=Neighbours(client, f"{run_name}:", 60)) for _ in range(2))
        assert Http(first.server.own_port).game("a", "start")[0] == 200
        assert Http(second.server.own_port).game("a", "tick")[0] == 307


def test_sessions_go_on_while_redis_is_away(gateways: Any) -> None:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        nobody = redis.Redis(port=found.getsockname()[1])
        http = Http(gateways(shared=Neighbours(nobody, "x:", 60)).server.port)
        assert http.game("a", "start")[0] == http.game("a", "end")[0] == 200


@pytest.mark.parametrize("begins_anew", [False, True])
def test_a_session_that_ended_while_redis_was_away_is_free_once_it_is_back(
    redis_url: str, run_name: str, monkeypatch: pytest.MonkeyPatch, begins_anew: bool
) -> None:
    monkeypatch.setattr("workers.gateway.neighbours.AWAY", 0.0)
    with redis.Redis.from_url(redis_url) as client:
        first, second = (Neighbours(client, f"{run_name}:", 60) for _ in range(2))
        for number, one in enumerate((first, second)):
            one.enter(f"http://192.0.2.{number}:8000")
        tries = list[int]()

        def away(*given: Any) -> None:
            tries.append(len(given))
            raise redis.ConnectionError("Redis is away")

        async def claimed() -> list[str | None]:
            found = [await first.claim("a")]
            with monkeypatch.context() as hiccup:
                hiccup.setattr(first._redis, "eval", away)
                first.release("a")
                await first.settled()
                if begins_anew:
                    await first.claim("a")
            found.append(await second.claim("a"))
            await first.settled()
            return [*found, await second.claim("a")]

        held = "http://192.0.2.0:8000"
        assert asyncio.run(claimed()) == [None, held, held if begins_anew else None] and tries
        first.leave()
        second.leave()


def test_a_port_of_another_runs_gateway_is_not_shared(gateways: Any) -> None:
    gateway = gateways()
    other = Server(gateway.sessions, "127.0.0.1", 0, shared=True, facts=lambda: {"run": "theirs"}).start()
    try:
        _check_port("127.0.0.1", other.port, "theirs")
        with pytest.raises(ConfigurationError, match="is served by a gateway of run theirs"):
            _check_port("127.0.0.1", other.port, "ours")
    finally:
        other.stop()
