"""Tests of the decision after a process's death, without a process."""

from __future__ import annotations

from workers.config.roles import Restart
from workers.launch.processes.deaths import CALM, MOST_WAIT, MOST_WAIT_OPTIONAL, SOON, Death, History, decide
from workers.launch.processes.failure import Failure

BAD = Failure("ValueError: no such move", "/home/me/game.py:3")
AWAY = Failure("redis.exceptions.ConnectionError: Error 111")
FRESH = History(0, None, restarts=5)


def test_death_is_followed_by_a_restart_after_a_growing_wait() -> None:
    first = decide(Death("actor-0", 1, 30.0, BAD), FRESH)
    assert (first.wait, first.deaths, first.failure, first.ends_run) == (0.25, 1, BAD, False)
    assert first.text == "restarting actor-0 (1 of 5) in 0.25 s"
    waits = [decide(Death("actor-0", -9, 30.0), History(deaths, None, 99)).wait for deaths in range(8)]
    assert waits == [0.25, 0.5, 1.0, 2.0, 4.0, MOST_WAIT, MOST_WAIT, MOST_WAIT]


def test_too_many_deaths_of_a_critical_process_end_the_run() -> None:
    action = decide(Death("learner", -9, 30.0), History(5, None, 5))
    assert action.ends_run and action.wait is None
    assert action.text == "learner died 6 times; giving up (restarts=5)"


def test_optional_process_is_always_tried_again() -> None:
    action = decide(Death("evaluator-0", 1, 30.0), History(40, None, 5, Restart.optional))
    assert action.wait == MOST_WAIT_OPTIONAL and not action.ends_run and "(41)" in action.text


def test_same_failure_twice_soon_after_the_start_ends_the_tries() -> None:
    action = decide(Death("actor-0", 1, SOON - 1, BAD), History(1, BAD, 5))
    assert action.ends_run and "failed twice in the same way and will again" in action.text
    optional = decide(Death("evaluator-0", 1, SOON - 1, BAD), History(1, BAD, 5, Restart.optional))
    assert optional.wait is None and not optional.ends_run and optional.text.endswith("the run goes on without it")


def test_the_same_failure_in_another_copy_of_an_environment_ends_the_tries() -> None:
    first, second = (Failure(f"environment 'g.py:G': step() failed: KeyError: 3 (copy {i} of 16)") for i in (2, 11))
    assert decide(Death("learner", 1, SOON - 1, second), History(1, first, 5)).ends_run


def test_a_late_another_or_a_servers_failure_is_tried_again() -> None:
    other = Failure("KeyError: 'x'", "/home/me/game.py:9")
    assert decide(Death("actor-0", 1, SOON + 1, BAD), History(1, BAD, 5)).wait is not None
    assert decide(Death("actor-0", 1, 1.0, other), History(1, BAD, 5)).wait is not None
    assert decide(Death("actor-0", 1, 1.0, AWAY), History(1, AWAY, 5)).wait is not None


def test_deaths_before_a_calm_time_do_not_count() -> None:
    assert decide(Death("actor-0", 1, CALM + 1, BAD), History(5, BAD, 5)).deaths == 1


def test_death_while_a_server_is_away_does_not_count() -> None:
    action = decide(Death("actor-0", 1, 1.0, BAD, excused=True), History(5, BAD, 5))
    assert (action.wait, action.deaths, action.failure, action.ends_run) == (1.0, 5, None, False)


def test_number_that_is_not_finite_ends_the_run_at_once() -> None:
    nan = Failure("warren.errors.NotFinite: the loss of update 7 is nan")
    action = decide(Death("learner", 65, 500.0, nan), FRESH)
    assert action.ends_run and action.text == f"learner cannot go on: {nan}"


def test_process_that_is_never_restarted_is_given_up_at_its_first_death() -> None:
    action = decide(Death("learner-1", -9, 500.0), History(0, None, 5, Restart.never))
    assert action.wait is None and action.text == "learner-1 is not started again; the run goes on without it"
