"""Tests of WARREN_MIDDLEWARE: it names the middleware of the process, and a wrong name is one clear error."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.own_middleware import CODE

from tasks.middleware import checked_middleware, install
from warren.errors import ConfigurationError
from workers.launch.kinds.user_middleware import VARIABLE, install_from_environment


@pytest.fixture
def given(tmp_path: Path, monkeypatch):
    (tmp_path / "own_hooks.py").write_text(CODE)

    def act(*names: str) -> None:
        monkeypatch.setenv(VARIABLE, ",".join(f"{tmp_path}/own_hooks.py:{name}" for name in names))

    yield act
    install()


def test_named_middleware_is_installed_in_order(given):
    given("Mine", "made")
    install_from_environment()
    assert [type(one).__name__ for one in checked_middleware(None)] == ["Mine", "Mine"]


def test_an_empty_variable_installs_nothing(given):
    given()
    install_from_environment()
    assert checked_middleware(None) == ()


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("Mein", "did you mean Mine"),
        ("Other", "derive it from"),
        ("Broken", "making it failed at .*: OSError: no disk"),
    ],
)
def test_wrong_middleware_is_one_clear_error(given, name, told):
    given(name)
    with pytest.raises(ConfigurationError, match=told):
        install_from_environment()
