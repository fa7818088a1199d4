"""Tests of tasks.worker.running.run: each call has one outcome, whatever the function does."""

from __future__ import annotations

import pytest

from tasks.app.outcome import Failed
from tasks.worker.running import LocalCall, run


def calls(*items):
    return [LocalCall((item,), {}) for item in items]


def test_a_function_that_takes_one_call_gets_its_arguments_as_they_were_sent():
    assert run("s", lambda a, *, b: a - b, 1, [LocalCall((5,), {"b": 2}), LocalCall((1,), {"b": 1})], False) == [3, 0]


def test_a_batch_is_one_call_with_a_list():
    seen = []

    def double(items):
        seen.append(items)
        return [2 * item for item in items]

    assert run("s", double, 4, calls(1, 2, 3), True) == [2, 4, 6]
    assert seen == [[1, 2, 3]]


def test_several_arguments_of_one_call_arrive_as_a_tuple():
    assert run(
        "s", lambda items: [a + b for a, b in items], 4, [LocalCall((1, 2), {}), LocalCall((3, 4), {})], False
    ) == [3, 7]


def test_an_exception_in_the_place_of_a_result_fails_that_call_alone():
    first, second = run("s", lambda items: [items[0], KeyError("x")], 4, calls(1, 2), True)
    assert first == 1 and isinstance(second, Failed) and second.kind == "KeyError"


def test_isolation_fails_only_the_call_at_fault():
    outcomes = run("s", lambda items: [1 / item for item in items], 4, calls(1, 0, 4), True)
    assert outcomes[0] == 1 and outcomes[2] == 0.25
    assert outcomes[1].kind == "ZeroDivisionError" and "1 / item" in outcomes[1].traceback


def test_without_isolation_all_calls_fail_and_none_runs_twice():
    ran = []

    def store(items):
        ran.append(items)
        raise RuntimeError("full")

    assert [outcome.kind for outcome in run("s", store, 4, calls(1, 2), False)] == ["RuntimeError"] * 2
    assert ran == [[1, 2]]


@pytest.mark.parametrize("isolate", [False, True])
def test_a_wrong_number_of_results_is_an_error_that_names_the_service(isolate):
    for outcome in run("actor.wrong", lambda items: [0] * (len(items) + 1), 4, calls(1, 2), isolate):
        assert "actor.wrong was called with" in str(outcome.error) and "in order" in str(outcome.error)


def test_arguments_by_keyword_are_refused_for_a_batch():
    (outcome,) = run("actor.many", lambda items: items, 4, [LocalCall((), {"x": 1})], False)
    assert "actor.many" in str(outcome.error) and "x" in str(outcome.error)
