"""Flower shows a run and can end its workers: whom others reach asks for a login."""

from __future__ import annotations

import pytest

from warren.errors import ConfigurationError
from workers.flower import check_login

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
def test_it_is_served_on_loopback_or_with_a_login(
    monkeypatch: pytest.MonkeyPatch, address: str, given: dict[str, str]
) -> None:
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    check_login(address)


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
def test_elsewhere_it_is_refused_with_what_to_set(
    monkeypatch: pytest.MonkeyPatch, address: str, given: dict[str, str]
) -> None:
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigurationError, match="FLOWER_BASIC_AUTH=NAME:PASSWORD") as refused:
        check_login(address)
    assert given.get("WARREN_FLOWER_PUBLISHED", address) in str(refused.value)
