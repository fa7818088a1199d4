"""Actors' plain functions run in threads, and those that hang harm no other game."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from support.game_clients import Http
from support.gateways import Echo
from support.waiting import until

from workers.gateway.threads import Threads

OBSERVATION = {"observation": [0, 1, 2]}


class Frozen(Echo):
    """Its coroutine calls result(), as only plain functions may."""

    async def tick(self, body: bytes) -> str:
        return str(self.act(np.zeros(3)).result())


def test_a_coroutine_that_calls_result_is_refused_and_stops_no_other(gateways: Any) -> None:
    gateway = gateways(Frozen)
    http = Http(gateway.server.port)
    assert http.game("a", "start")[0] == 200
    status, body = http.game("a", "tick", OBSERVATION)
    assert status == 422 and b"a coroutine awaits it" in body
    assert http.facts()["sessions"] == 0


class Hanging(Echo):
    """Ticks hang until `let` is set, except for the body "quick"."""

    let = threading.Event()

    def tick(self, body: bytes) -> str:  # type: ignore[override]
        if body != b"quick":
            self.let.wait(60)
        return "done"


@pytest.fixture
def hanging(gateways: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Yield a gateway with two threads that allows three hanging functions."""
    monkeypatch.setattr("workers.gateway.sessions.THREADS", 2)
    monkeypatch.setattr("workers.gateway.sessions.HANGING", 3)
    Hanging.let.clear()
    yield gateways(Hanging, answer=0.5)
    Hanging.let.set()


def quick(http: Http) -> bool:
    """Return whether a quick tick is answered; one that came too late no longer counts as hanging."""
    hanging = http.facts()["hanging"]
    assert http.game("quick", "start")[0] == 200
    status = http.game("quick", "tick", b"quick")[0]
    assert status in (200, 504)
    until(lambda: http.facts()["hanging"] <= hanging)
    return status == 200 and http.game("quick", "end")[0] == 200


def test_hanging_functions_are_counted_and_keep_no_thread_from_others(hanging: Any) -> None:
    http = Http(hanging.server.port)
    for name in "ab":
        assert http.game(name, "start")[0] == 200
        assert http.game(name, "tick")[0] == 504
    assert http.facts()["hanging"] == 2
    until(lambda: quick(http))
    Hanging.let.set()
    until(lambda: http.facts()["hanging"] == 0)


def test_too_many_hanging_functions_refuse_calls_and_fail_health(hanging: Any) -> None:
    http = Http(hanging.server.port)
    for name in "abc":
        assert http.game(name, "start")[0] == 200
        assert http.game(name, "tick")[0] == 504
    http.connection.request("GET", "/health")
    reply = http.connection.getresponse()
    assert (reply.status, reply.read()) == (503, b'{"ready": false, "draining": false, "hanging": 3}\n')
    assert http.game("d", "start")[0] == 200  # `start` is a coroutine
    status, body = http.game("d", "tick", b"quick")
    assert status == 503 and b"3 plain functions of actors hang" in body
    Hanging.let.set()
    until(lambda: http.facts()["hanging"] == 0)
    until(lambda: quick(http))


@pytest.mark.parametrize("ends_first", [True, False])
def test_a_function_that_ends_as_its_game_gives_up_does_not_hang(ends_first: bool) -> None:
    """Else each such function would count for ever, until the gateway refuses all others."""

    async def both_in_one_turn() -> int:
        threads, loop = Threads(1, 1), asyncio.get_running_loop()
        going, ended, held = threading.Event(), threads._ended, loop.create_future()
        threads._ended = lambda *given: held.set_result(given)  # type: ignore[method-assign]
        game = asyncio.ensure_future(threads.run(going.wait, 60.0))
        await asyncio.sleep(0)  # it waits for the function
        going.set()
        given = await asyncio.wait_for(held, 60.0)
        for step in (lambda: ended(*given), game.cancel)[:: 1 if ends_first else -1]:
            step()
        with pytest.raises(asyncio.CancelledError):
            await game
        threads.close()
        return threads.hanging

    assert asyncio.run(both_in_one_turn()) == 0


class Leaving(Echo):
    """Raises what would end a thread or an event loop."""

    def tick(self, body: bytes) -> str:  # type: ignore[override]
        raise {b"stop": StopIteration, b"exit": SystemExit}[body]


def test_whatever_a_function_raises_ends_its_session_alone(gateways: Any) -> None:
    http = Http(gateways(Leaving).server.port)
    for body in (b"stop", b"exit"):
        assert http.game("a", "start")[0] == 200
        assert http.game("a", "tick", body)[0] == 422
    assert http.facts()["failed"] == 2
