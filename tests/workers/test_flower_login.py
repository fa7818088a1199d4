"""Flower can end a run's workers: where others can reach it, it needs a login."""

from __future__ import annotations

import socket
from contextlib import ExitStack, suppress

import pytest

from workers.config import plain_checks
from workers.config.flower_login import missing_login
from workers.config.schema import Config
from workers.servers.ports import free_port

LOGIN = {"FLOWER_BASIC_AUTH": "me:secret"}


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FLOWER_BASIC_AUTH", "WARREN_FLOWER_PUBLISHED"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("address", "given"),
    [
        ("127.0.0.1", {}),
        ("localhost", {}),
        ("::1", {}),
        ("0.0.0.0", LOGIN),
        ("192.168.1.7", LOGIN),
        ("0.0.0.0", {"WARREN_FLOWER_PUBLISHED": "127.0.0.1"}),  # in a container whose port is published on loopback
    ],
)
def test_flower_is_served_on_loopback_or_with_a_login(
    monkeypatch: pytest.MonkeyPatch, address: str, given: dict[str, str]
) -> None:
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    assert missing_login(address) is None


@pytest.mark.parametrize(
    ("address", "given"),
    [
        ("0.0.0.0", {}),
        ("::", {}),
        ("192.168.1.7", {}),
        ("box-2", {"FLOWER_BASIC_AUTH": ""}),
        ("127.0.0.1", {"WARREN_FLOWER_PUBLISHED": "0.0.0.0"}),
    ],
)
def test_flower_without_a_login_is_refused_elsewhere_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch, address: str, given: dict[str, str]
) -> None:
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    refused = missing_login(address) or ""
    assert "FLOWER_BASIC_AUTH=NAME:PASSWORD" in refused
    assert given.get("WARREN_FLOWER_PUBLISHED", address) in refused


def test_a_launcher_refuses_flower_without_a_login() -> None:
    config = Config(flower_port=free_port(), flower_address="0.0.0.0")
    assert any("FLOWER_BASIC_AUTH" in problem for problem in plain_checks.problems(config, "train"))


def test_flowers_port_is_checked_at_its_own_address() -> None:
    with ExitStack() as held:
        while True:  # until a port is free at the other address, too, where servers of other tests listen
            port = held.enter_context(socket.create_server(("127.0.0.2", 0))).getsockname()[1]
            with suppress(OSError), socket.create_server(("127.0.0.1", port)):
                break
        for address, free in (("127.0.0.1", True), ("127.0.0.2", False)):
            config = Config(flower_port=port, flower_address=address)
            said = [one for one in plain_checks.problems(config, "train") if one.startswith("flower_port")]
            assert (said == []) is free
