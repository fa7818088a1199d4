"""The rates of vector steps."""

from __future__ import annotations

from benchmarks.stepping import step_us


def test_forms_that_a_game_has_are_timed_and_the_others_are_left_out(monkeypatch):
    monkeypatch.setattr("benchmarks.stepping.FORMS", {"library": 3, "sync": 3})
    assert step_us("CartPole-v1", "library", 4, 1) > 0
    assert step_us("Pendulum-v1", "library", 4, 1) is None
    assert step_us("Pendulum-v1", "sync", 4, 1) > 0
