"""The setting `middleware`: all its problems are reported before anything starts, and a role installs it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.own_middleware import CODE

from tasks.middleware import checked_middleware, install
from warren.errors import ConfigurationError
from workers.config import middleware, roles
from workers.config.schema import Config
from workers.config.validation import problems_of_building
from workers.runtime import role as module


@pytest.fixture
def own(tmp_path: Path) -> Iterator[str]:
    (tmp_path / "own_hooks.py").write_text(CODE)
    yield f"{tmp_path}/own_hooks.py"
    install()


def test_all_problems_of_middleware_are_reported_at_once(own: str) -> None:
    config = Config(middleware=[f"{own}:Mein", f"{own}:Other", f"{own}:Broken", own, "nowhere.py:Mine", f"{own}:Mine"])
    told = [problem for problem in problems_of_building(config, "train") if problem.startswith("middleware: ")]
    wanted = ("did you mean Mine", "derive it from", "OSError: no disk", "write file.py:NAME", "there is no file")
    assert len(told) == len(wanted) and all(words in one for words, one in zip(wanted, told, strict=True)), told
    assert not list(middleware.problems([f"{own}:Mine", f"{own}:made"]))


def test_a_role_installs_middleware_in_order_before_its_session(own: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def session(*_: Any, **__: Any) -> list[str]:
        return [type(one).__name__ for one in checked_middleware(None)]

    monkeypatch.setattr(module, "verify", lambda config, role: None)
    monkeypatch.setattr(module, "connect", lambda config: ())
    monkeypatch.setattr(module, "Session", session)
    found: Any = module.enter(Config(middleware=[f"{own}:Mine", f"{own}:made"]), roles.LEAGUE)
    assert found == ["Mine", "Mine"]
    with pytest.raises(ConfigurationError, match="no disk"):
        module.enter(Config(middleware=[f"{own}:Broken"]), roles.LEAGUE)
