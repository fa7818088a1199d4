"""Tests of work in steps: run at once, or as steps of other work."""

from __future__ import annotations

from typing import Any

import pytest

from tasks.app.steps import Steps, drive, nested


def halves(calls: list[int], log: list[Any]) -> Steps:
    middle = len(calls) // 2
    try:
        first = yield calls[:middle]
        second = yield calls[middle:]
    except BaseException as error:
        log.append(type(error))
        raise
    return first + second


def doubled(calls: list[int]) -> list[int]:
    return [2 * call for call in calls]


def test_all_steps_are_driven_and_their_outcomes_returned_in_order():
    assert drive(halves([1, 2, 3], []), doubled) == [2, 4, 6]


def test_an_error_of_a_step_passes_through_the_generator():
    log: list[Any] = []
    with pytest.raises(SystemExit):
        drive(halves([1], log), lambda _: (_ for _ in ()).throw(SystemExit(1)))
    assert log == [SystemExit]


def test_inner_steps_are_passed_on_and_errors_reach_both_generators():
    log: list[Any] = []
    assert drive(nested(halves([1, 2, 3, 4], log), lambda some: halves(some, log)), doubled) == [2, 4, 6, 8]
    steps = nested(halves([1, 2, 3, 4], log), lambda some: halves(some, log))
    assert next(steps) == [1]
    steps.close()
    assert log == [GeneratorExit, GeneratorExit]
