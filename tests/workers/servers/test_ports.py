"""Tests of free ports: each is named once, and none is named where a server listens."""

from __future__ import annotations

import socket
from collections import deque
from types import SimpleNamespace

import pytest

from workers.servers import ports
from workers.servers.ports import free_port


def test_a_free_port_is_not_named_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = [free_port() for _ in range(3)]  # free ones
    monkeypatch.setattr(ports, "_given", deque[int](maxlen=100))
    named = iter([drawn[0], drawn[0], drawn[1], drawn[0], drawn[2]])
    monkeypatch.setattr(ports, "_random", SimpleNamespace(choice=lambda _: next(named)))
    assert [free_port() for _ in range(3)] == drawn


def test_a_free_port_is_not_one_where_a_server_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken, free = server.getsockname()[1], free_port()
        monkeypatch.setattr(ports, "_given", deque[int](maxlen=100))
        named = iter([taken, free])
        monkeypatch.setattr(ports, "_random", SimpleNamespace(choice=lambda _: next(named)))
        assert free_port() == free
        monkeypatch.setattr(ports, "_random", SimpleNamespace(choice=lambda _: taken))
        assert free_port() not in (taken, free), "the kernel names one at last"
