"""Fixtures for tests of rounds, and of the learner that asks for them."""

from __future__ import annotations

import pytest
from support.stand_ins import Chords

from workers.learning import sync_rounds


@pytest.fixture
def chords(monkeypatch: pytest.MonkeyPatch) -> Chords:
    chords = Chords()
    monkeypatch.setattr(sync_rounds, "gather", chords.gather)
    return chords
