"""Tests of a rollout's answer: a failure is one line and tells the user's errors from others; a stop requeues it."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from celery.exceptions import Reject

from warren.errors import ConfigurationError, WarrenError
from workers.rollout.sending.answers import answer


def fail(error: Exception) -> Any:
    def play() -> dict[str, Any]:
        raise error

    return play


def test_a_rollout_that_succeeds_names_its_round() -> None:
    assert answer("7-a", threading.Event(), lambda: {"trajectory": 1}) == {"round": "7-a", "trajectory": 1}


def test_an_error_of_the_users_own_code_is_marked_as_such() -> None:
    error = ConfigurationError("environment 'game.py:Game': step() failed at game.py:7: ValueError: no such move")
    found = answer("7-a", threading.Event(), fail(error))
    assert found == {"round": "7-a", "failed": str(error), "by_user": True}


def test_any_other_error_is_one_line_with_the_place_where_it_was_raised() -> None:
    found = answer("7-a", threading.Event(), fail(ValueError("two\nlines")))
    assert not found["by_user"]
    assert found["failed"].startswith("ValueError: two lines at ")
    assert "test_answers.py:" in found["failed"] and "\n" not in found["failed"]


def test_an_actor_that_stops_while_it_waits_requeues_its_rollout() -> None:
    stopping = threading.Event()
    waiting = WarrenError("weights of version 3 did not arrive")
    assert "failed" in answer("7-a", stopping, fail(waiting))
    stopping.set()
    with pytest.raises(Reject) as rejected:
        answer("7-a", stopping, fail(waiting))
    assert rejected.value.requeue
