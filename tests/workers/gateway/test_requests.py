"""A gateway's answers in both dialects and in raw form: replies, refusals, and their effect on sessions."""

from __future__ import annotations

import json
import socket
import threading
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from support.game_clients import Http, Tcp
from support.gateways import Echo
from support.waiting import until

from workers.gateway import Actor

OBSERVATION = {"observation": [0.0, 1.0, 2.0]}


def error(body: bytes) -> str:
    (line,) = body.decode().splitlines()
    return str(json.loads(line)["error"])


def test_a_game_starts_ticks_and_ends_in_each_dialect_and_in_the_raw_form(gateways: Any) -> None:
    gateway = gateways()
    http, tcp = Http(gateway.server.port), Tcp(gateway.server.tcp_port)
    assert http.game("a", "start") == (200, b"")
    assert http.game("a", "tick", OBSERVATION)[1] in (b"0", b"1")
    assert http.game("a", "end") == (200, b"bye")
    fields = {"session": "b", "key": "k", "time": "17"}
    assert http.ask(step_kind="start", **fields)[0] == 200
    status, body, headers = http.ask(json.dumps(OBSERVATION).encode(), step_kind="tick", **fields)
    assert (status, body in (b"0", b"1")) == (200, True)
    assert {name: headers[name] for name in fields} == fields
    assert http.ask(step_kind="stop", **fields)[:2] == (200, b"bye")
    assert tcp.ask(step_kind="start", **fields) == ({"status": "200", **fields}, b"")
    assert tcp.ask(json.dumps(OBSERVATION).encode(), step_kind="tick", **fields)[1] in (b"0", b"1")
    assert tcp.ask(step_kind="stop", session="b") == ({"status": "200", "session": "b"}, b"bye")
    assert http.facts()["sessions"] == 0


def test_auto_opens_the_session_that_is_not_open(gateways: Any) -> None:
    gateway = gateways()
    http = Http(gateway.server.port)
    for _ in range(2):
        status, body, _ = http.ask(json.dumps(OBSERVATION).encode(), session="a", step_kind="auto")
        assert (status, body in (b"0", b"1")) == (200, True)
    assert http.facts()["sessions"] == 1


def test_each_dialect_takes_the_others_words(gateways: Any) -> None:
    http = Http(gateways().server.port)
    body = json.dumps(OBSERVATION).encode()
    for dialect, kind in (("game_id", "stop"), ("session", "end")):
        assert http.ask(body, **{dialect: "a", "step_kind": "auto"})[0] == 200
        assert http.ask(**{dialect: "a", "step_kind": kind})[:2] == (200, b"bye")


def test_each_mistake_has_its_status_and_one_line_that_says_why(gateways: Any) -> None:
    gateway = gateways(body=1000, sessions=2)
    http = Http(gateway.server.port)
    assert http.game("a", "start")[0] == 200
    for status, said, headers, body in (
        (400, "'jump' is unknown; it is one of start, tick", {"game_id": "a", "step_kind": "jump"}, b""),
        (400, "step_kind: not given", {"game_id": "a"}, b""),
        (400, "session: not given", {"step_kind": "tick"}, b""),
        (400, "both given", {"step_kind": "tick", "session": "a", "game_id": "a"}, b""),
        (400, "256", {"step_kind": "tick", "session": "a" * 300}, b""),
        (404, "session b: is not open", {"step_kind": "tick", "session": "b"}, b""),
        (404, "session b: is not open", {"step_kind": "stop", "session": "b"}, b""),
        (409, "session a: is open already", {"step_kind": "start", "session": "a"}, b""),
        (422, "no JSON", {"step_kind": "tick", "session": "a"}, b"\xff{"),
    ):  # fmt: skip
        answer = http.ask(body, **headers)
        assert answer[0] == status and said in error(answer[1]), answer
    assert http.ask(b"", "DELETE", session="a")[0] == 405
    assert http.game("b", "start")[0] == 200
    status, body = http.game("c", "start")
    assert status == 503 and "2 sessions are open" in error(body)
    status, body = Http(gateway.server.port).game("a", "tick", b"x" * 1001)
    assert status == 413 and "1000 bytes" in error(body)
    # Unreadable JSON left the session open; an error that the actor did not foresee closes it and shows one line.
    status, body = http.game("a", "tick", {"observation": [1, 2]})
    assert status == 422 and "observation must be float32 [3], is float32 [2]" in error(body)
    assert "Traceback" not in body.decode() and http.game("a", "tick", OBSERVATION)[0] == 404


def test_a_game_that_sends_too_much_is_told_so(gateways: Any) -> None:
    gateway = gateways(body=1000)
    http, tcp = Http(gateway.server.port), Tcp(gateway.server.tcp_port)
    more_than_the_kernel_keeps = bytes(32 << 20)
    status, body = http.game("a", "start", more_than_the_kernel_keeps)
    assert status == 413 and "over the 1000 bytes" in error(body)
    assert http.game("a", "start")[0] == 200
    head, body = tcp.ask(more_than_the_kernel_keeps, session="b", step_kind="start")
    assert head["status"] == "413" and "33554432 bytes are over the 1000" in error(body)
    assert tcp.socket.recv(1) == b""


def test_a_token_is_asked_for_where_one_is_set(gateways: Any) -> None:
    http = Http(gateways(token="secret").server.port)
    assert http.game("a", "start")[0] == 401
    assert http.ask(session="a", step_kind="start", token="guess")[0] == 401
    assert http.ask(session="a", step_kind="start", token="secret")[0] == 200


def test_every_get_but_health_needs_the_token(gateways: Any) -> None:
    connection = Http(gateways(token="secret").server.port).connection

    def get(path: str, **headers: str) -> int:
        connection.request("GET", path, headers=headers)
        reply = connection.getresponse()
        reply.read()
        return reply.status

    assert get("/health") == 200
    for path in ("/", "/metrics", "/metrics/process"):
        assert [get(path), get(path, token="guess"), get(path, authorization="Bearer guess")] == [401] * 3
        assert [get(path, token="secret"), get(path, authorization="Bearer secret")] == [200] * 2


def test_games_without_weights_are_refused_with_retry_after(gateways: Any) -> None:
    gateway = gateways()
    gateway.sampler.version = -1
    status, body, headers = Http(gateway.server.port).ask(session="a", step_kind="start")
    assert (status, headers["retry-after"]) == (503, "1") and "weights" in error(body)


@pytest.mark.parametrize(
    "sent",
    [
        b"POST / HTTP/1.1\r\nhost: a\r\ngame_id: a",
        b"POST / HTTP/1.1\r\nhost: a\r\ngame_id: a\r\nstep_kind: start\r\ncontent-length: 10\r\n\r\nhalf",
    ],
)
def test_a_slow_client_gets_status_408(gateways: Any, sent: bytes) -> None:
    gateway = gateways(receive=0.1)
    with socket.create_connection(("127.0.0.1", gateway.server.port), timeout=30) as slow:
        slow.sendall(sent)
        assert slow.recv(1000).startswith(b"HTTP/1.1 408 ")
        while slow.recv(1000):  # until the connection is closed
            pass
    assert len(gateway.sessions) == 0


def test_an_idle_session_is_reaped_and_one_that_is_used_is_not(gateways: Any) -> None:
    gateway, now = gateways(idle=0.8), [0.0]  # made-up clock: this process may be paused between two ticks
    gateway.sessions._clock = lambda: now[0]
    http = Http(gateway.server.port)
    http.game("gone", "start")
    http.game("here", "start")
    for now[0] in (0.5, 0.9):
        assert http.game("here", "tick", OBSERVATION)[0] == 200
    until(lambda: http.facts()["reaped"])
    assert (http.facts()["reaped"], http.facts()["sessions"]) == (1, 1)
    assert http.game("here", "tick", OBSERVATION)[0] == 200
    assert http.game("gone", "tick", OBSERVATION)[0] == 404


class Slow(Actor):
    """Answers once `let` is set."""

    observation_space = Box(-10, 10, (3,), np.float32)
    action_space = Discrete(2)
    began, let = threading.Event(), threading.Event()

    def tick(self, body: bytes) -> str:
        self.began.set()
        self.let.wait(30)
        return str(self.act(np.zeros(3)).result())

    def stop(self, body: bytes) -> None:
        return None


def test_a_session_answers_in_turn_and_a_plain_function_delays_no_other(gateways: Any) -> None:
    gateway = gateways(Slow)
    Slow.let.clear()
    first, second = Http(gateway.server.port), Http(gateway.server.port)
    assert first.game("a", "start")[0] == second.game("b", "start")[0] == 200
    answers: list[Any] = []
    waiting = threading.Thread(target=lambda: answers.append(first.game("a", "tick")))
    waiting.start()
    assert Slow.began.wait(30)
    status, body = second.game("a", "end")
    assert status == 409 and "still answering" in error(body)
    assert second.facts()["sessions"] == 2
    Slow.let.set()
    waiting.join(30)
    assert answers[0][0] == 200 and answers[0][1] in (b"0", b"1")
    assert second.game("a", "end") == (200, b"")


def test_an_actor_that_takes_too_long_loses_its_session(gateways: Any) -> None:
    gateway = gateways(Slow, answer=0.2)
    Slow.let.clear()
    http = Http(gateway.server.port)
    http.game("a", "start")
    assert http.game("a", "tick")[0] == 504
    Slow.let.set()
    assert http.facts()["sessions"] == 0


def test_a_game_that_leaves_while_it_is_answered_keeps_its_session(gateways: Any) -> None:
    gateway = gateways()
    http = Http(gateway.server.port)
    http.game("a", "start")
    with socket.create_connection(("127.0.0.1", gateway.server.port)) as leaving:
        body = json.dumps(OBSERVATION).encode()
        head = f"POST / HTTP/1.1\r\nhost: a\r\ngame_id: a\r\nstep_kind: tick\r\ncontent-length: {len(body)}\r\n\r\n"
        leaving.sendall(head.encode() + body)
    until(lambda: gateway.sampler.decisions == 1)
    until(lambda: http.game("a", "tick", OBSERVATION)[0] == 200)


class Named(Echo):
    """Reads its session in the constructor."""

    def __init__(self) -> None:
        self.name = self.session

    async def start(self, body: bytes) -> str:
        return self.name


def test_an_actor_knows_its_session_in_its_constructor(gateways: Any) -> None:
    assert Http(gateways(Named).server.port).game("a", "start") == (200, b"a")


class Several(Echo):
    """Acts for the agent that the body names."""

    async def tick(self, body: bytes) -> str:
        return str(await self.act(np.zeros(3), agent=body.decode()))


def test_agents_of_a_session_are_bounded(gateways: Any) -> None:
    http = Http(gateways(Several, agents=3).server.port)
    assert http.game("a", "start")[0] == 200
    for _ in range(2):  # known agents may go on
        assert [http.game("a", "tick", name)[0] for name in (b"0", b"1", b"2")] == [200] * 3
    status, body = http.game("a", "tick", b"3")
    assert status == 422 and "3 agents play in this session, and no more may (gateway.max_agents)" in error(body)
