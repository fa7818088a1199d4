"""No input ends a gateway, shows its insides, or leaves a session behind."""

from __future__ import annotations

import http.client
import json
import socket
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.game_clients import Http, Tcp
from support.gateways import Gateway

from workers.gateway.protocol import Kind, Refusal, read
from workers.gateway.tcp import pairs

NAMES = st.sampled_from(["game_id", "session", "step_kind", "step-kind", "key", "time", "token", "host", "x"])
KINDS = st.sampled_from(["start", "tick", "end", "stop", "auto", "jump", ""])
VALUES = st.one_of(KINDS, st.sampled_from(["a", "b"]), st.text(st.characters(min_codepoint=32, max_codepoint=255)))
NUMBERS = st.one_of(st.floats(), st.integers(), st.none(), st.text(max_size=3), st.booleans())
BODIES = st.one_of(
    st.binary(max_size=64),
    st.builds(
        lambda *parts: json.dumps(dict(zip(("observation", "reward", "last"), parts, strict=True))).encode(),
        st.one_of(st.lists(NUMBERS, max_size=4), NUMBERS), NUMBERS, st.one_of(st.lists(NUMBERS, max_size=4), NUMBERS),
    ),
)  # fmt: skip
ANSWERS = {200, 400, 404, 409, 413, 422, 431}
ANY = {"deadline": None, "suppress_health_check": [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]}


@given(st.lists(st.tuples(st.binary(max_size=12), st.binary(max_size=300))), st.binary(max_size=100))
def test_fields_are_read_or_refused(fields: list[tuple[bytes, bytes]], head: bytes) -> None:
    for given_fields in (lambda: fields, lambda: pairs(head)):
        try:
            found = read(given_fields())
        except Refusal as refusal:
            assert refusal.status == 400 and refusal.body().count(b"\n") == 1
        else:
            assert found.session and isinstance(found.kind, Kind)


@settings(max_examples=80, **ANY)
@given(requests=st.lists(st.tuples(st.dictionaries(NAMES, VALUES, max_size=5), BODIES), max_size=6))
def test_whatever_games_send_they_get_one_line_and_no_session_is_left(gateway: Gateway, requests: Any) -> None:
    client, raw = Http(gateway.server.port), Tcp(gateway.server.tcp_port)
    for fields, body in requests:
        try:
            status, said, _ = client.ask(body, **{"session": "a", "step_kind": "tick", **fields})
        except (
            ValueError,
            UnicodeError,
            http.client.HTTPException,
            OSError,
        ):  # raised by the client itself
            client = Http(gateway.server.port)
            continue
        _is_an_answer(status, said)
        head, said = raw.ask(
            body, **{name: value.replace("\n", "") for name, value in fields.items() if name != "host"}
        )
        _is_an_answer(int(head["status"]), said)
    # Every open session can still be ended.
    for name in list(gateway.sessions._sessions):
        status, _, _ = client.ask(b"{}", session=name, step_kind="stop")
        assert status in (200, 422), name
    assert len(gateway.sessions) == 0


@settings(max_examples=60, **ANY)
@given(sent=st.lists(st.binary(max_size=60), max_size=4))
def test_bytes_that_are_no_requests_leave_no_session(gateway: Gateway, sent: list[bytes]) -> None:
    for port in (gateway.server.port, gateway.server.tcp_port):
        with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
            for part in sent:
                try:
                    connection.sendall(part)
                except OSError:
                    break
    assert Http(gateway.server.port).facts()["sessions"] == 0


def _is_an_answer(status: int, said: bytes) -> None:
    assert status in ANSWERS, (status, said)
    if status != 200:
        (line,) = said.decode().splitlines()
        assert json.loads(line)["error"] and "Traceback" not in line and ".py" not in line


@pytest.fixture
def gateway(gateways: Any) -> Gateway:
    """Return one gateway for all examples of a test."""
    made: Gateway = gateways()
    return made


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Silence the log: what actors raise is logged with its traceback."""
    caplog.set_level("CRITICAL", "workers.gateway.sessions")
