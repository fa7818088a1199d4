"""Test of the benchmark of vector steps."""

from __future__ import annotations

from benchmarks.stepping import step_us


def test_only_forms_that_a_game_has_are_timed(monkeypatch):
    monkeypatch.setattr("benchmarks.stepping.FORMS", {"library": 3, "sync": 3})
    assert step_us("CartPole-v1", "library", 4, 1) > 0
    assert step_us("Pendulum-v1", "library", 4, 1) is None
    assert step_us("Pendulum-v1", "sync", 4, 1) > 0
