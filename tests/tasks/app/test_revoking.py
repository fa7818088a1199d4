"""Tests of revoked calls, which a worker looks for in one thread while remote control revokes more in another."""

from __future__ import annotations

from typing import Any

import pytest
from celery.worker import state as worker_state

from tasks.app.revoking import is_revoked


class Stamps(dict[str, Any]):
    """The stamps of a call, during whose reading a further stamp is revoked."""

    def get(self, name: str, default: Any = None) -> Any:
        worker_state.revoked_stamps.setdefault("tenant", ["b"])
        return super().get(name, default)


@pytest.mark.parametrize(("match", "revoked"), [("1", True), ("2", False)])
def test_a_stamp_may_be_revoked_while_calls_are_compared(
    monkeypatch: pytest.MonkeyPatch, match: str, revoked: bool
) -> None:
    monkeypatch.setattr(worker_state, "revoked_stamps", {"batch": ["0"], "match": ["1"]})
    assert is_revoked({"id": "one", "stamps": Stamps(match=match)}) is revoked
    assert worker_state.revoked_stamps["tenant"] == ["b"]
