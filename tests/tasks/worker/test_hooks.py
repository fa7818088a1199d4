"""Tests of a user's middleware around a worker's calls: its hooks, their order, and hooks that raise."""

from __future__ import annotations

from typing import Any

import pytest
from celery.exceptions import Ignore
from celery.worker import state as worker_state
from support.serving_in_memory import InMemoryServing
from support.waiting import until

from tasks.amqp.messages import FAILED
from tasks.middleware import Call, Middleware, current_call, current_calls
from tasks.service import Worker, service


class Shop(Worker):
    def __init__(self) -> None:
        super().__init__()
        self.ran: list[Any] = []

    @service
    def add(self, a: int) -> int:
        self.ran.append(a)
        return a + 1

    @service
    def fail(self, message: str) -> None:
        raise ValueError(message)

    @service(batch=8, gather="exactly")
    def inverses(self, numbers: list[int]) -> list[Any]:
        self.ran.append(list(numbers))
        return [(call.headers.get("number"), 1 / n) for call, n in zip(current_calls(), numbers, strict=True)]

    @service(response=False)
    def push(self, what: str) -> None:
        self.ran.append(what)

    @service
    def told(self) -> Any:
        call = current_call()
        return None if call is None else (call.service, call.headers)


class Told(Middleware):
    """Records each hook in `log` with its `name`; `raises`: hook -> the exception that it raises."""

    def __init__(self, log: list[str], name: str = "a", **raises: BaseException) -> None:
        self.log, self.name, self.raises = log, name, raises

    def before_run(self, call: Call) -> None:
        self._note("before_run", call.service)

    def after_run(self, call: Call, *, result: Any = None, error: BaseException | None = None) -> None:
        self._note("after_run", result if error is None else repr(error))

    def after_drop(self, call: Call, reason: str) -> None:
        self._note("after_drop", reason)

    def _note(self, hook: str, about: Any) -> None:
        self.log.append(f"{self.name} {hook} {about}")
        if hook in self.raises:
            raise self.raises[hook]


@pytest.fixture
def serve(monkeypatch):
    made = []

    def start(*middleware: Middleware) -> InMemoryServing:
        made.append(InMemoryServing(monkeypatch, Shop(), middleware=middleware))
        return made[-1]

    yield start
    for one in made:
        one.loop.stop(20.0)


def shop(serving: InMemoryServing) -> Any:
    return serving._workers[0]


def test_hooks_run_around_a_call_the_first_middleware_outermost(serve):
    log: list[str] = []
    serving = serve(Told(log, "a"), Told(log, "b"))
    serving.start()
    assert serving.answer(serving.send("shop.add", 1)) == ("", 2)
    assert log == ["a before_run shop.add", "b before_run shop.add", "b after_run 2", "a after_run 2"]


def test_after_run_is_given_what_the_service_raised(serve):
    log: list[str] = []
    serving = serve(Told(log))
    serving.start()
    assert serving.answer(serving.send("shop.fail", "no"))[0] == FAILED
    assert log[1] == "a after_run ValueError('no')"


@pytest.mark.parametrize("error", [KeyError("door"), SystemExit(3), KeyboardInterrupt()])
def test_an_exception_of_before_run_fails_only_its_call(serve, error):
    log: list[str] = []
    serving = serve(Told(log, "a"), Told(log, "b", before_run=error))
    serving.start()
    kind, (name, *_) = serving.answer(serving.send("shop.add", 1))
    assert (kind, name) == (FAILED, type(error).__name__)
    assert log == ["a before_run shop.add", "b before_run shop.add", f"a after_run {error!r}"]
    assert shop(serving).ran == [] and serving.loop.failure is None
    assert serving.answer(serving.send("shop.add", 1))[0] == FAILED, "the worker did not go on"


def test_an_exception_of_after_run_fails_a_call_that_had_a_result(serve):
    log: list[str] = []
    serving = serve(Told(log, "a"), Told(log, "b", after_run=ValueError("too late")))
    serving.start()
    kind, (name, message, _) = serving.answer(serving.send("shop.add", 1))
    assert (kind, name, message) == (FAILED, "ValueError", "too late")
    assert log[-1] == "a after_run ValueError('too late')"
    kind, (_, message, _) = serving.answer(serving.send("shop.fail", "first"))
    assert (kind, message) == (FAILED, "first"), "the caller did not get the service's own error"


def test_a_hook_may_ignore_a_call(serve):
    serving = serve(Told([], before_run=Ignore()))
    serving.start()
    serving.send("shop.push", "x", direct=False)
    until(lambda: serving.count("shop.push", "calls") == 1)
    assert shop(serving).ran == [] and serving.dead == [] and not serving.waiting("shop.push")


def test_the_calls_of_a_batch_that_no_hook_refused_run_together(serve):
    class NoThrees(Middleware):
        def before_run(self, call: Call) -> None:
            if call.args == (3,):
                raise ValueError("three")

    serving = serve(NoThrees())
    serving.declare()
    ids = [serving.send("shop.inverses", n, headers={"number": n}) for n in range(1, 9)]
    serving.start()
    answers = [serving.answer(one) for one in ids]
    assert shop(serving).ran == [[1, 2, 4, 5, 6, 7, 8]]
    assert [kind for kind, _ in answers] == ["", "", FAILED, *[""] * 5]
    assert answers[3] == ("", (4, 0.25)), "calls of a batch got the headers of others"


def test_hooks_are_told_that_a_revoked_call_was_dropped(serve):
    log: list[str] = []
    serving = serve(Told(log, "a", after_drop=ValueError("logged")), Told(log, "b"))
    serving.declare()
    call_id = serving.send("shop.add", 1)
    worker_state.revoked.add(call_id)
    try:
        serving.start()
        until(lambda: len(log) == 2)
    finally:
        worker_state.revoked.discard(call_id)
    assert log == ["a after_drop revoked", "b after_drop revoked"] and shop(serving).ran == []


def test_a_service_sees_its_callers_headers_but_none_of_celerys(serve):
    serving = serve()
    serving.start()
    headers = {"traceparent": "00-1-2-01", "tenant": 7, "dry": True, "share": 0.5}
    found = serving.answer(serving.send("shop.told", headers=headers))
    assert found == ("", ("shop.told", headers))
    assert current_call() is None and current_calls() == []


def test_a_one_way_call_that_a_hook_refused_is_a_dead_letter(serve):
    serving = serve(Told([], before_run=PermissionError("not you")))
    serving.start()
    serving.send("shop.push", "x", direct=False)
    until(lambda: serving.broker.waiting("warren.memory.dead.shop"))
    assert shop(serving).ran == []


def test_middleware_without_hooks_around_calls_does_not_wrap_them(serve):
    class Boots(Middleware):
        def before_worker_boot(self, worker: str) -> None:
            """Do nothing."""

    serving = serve(Boots(), Middleware())
    assert all(task.hooks is None for task in serving._tasks.values())
