"""Tests of workers served in the test's process, as in users' tests, and of the example on the page of services."""

from __future__ import annotations

import asyncio
import re
import threading
from pathlib import Path
from typing import Any

import pytest
from celery.worker import state
from support.waiting import until

from tasks.middleware import Call, Middleware
from tasks.service import Worker, event_handler, service
from tasks.testing import serving
from warren.errors import CallCancelled, ConfigurationError, DeadlinePassed, NoSuchService, RemoteFailure

PAGE = Path(__file__).parents[2] / "docs" / "services.md"


class Actor(Worker):
    def __init__(self) -> None:
        super().__init__()
        self.weights, self.pushed = 1, list[str]()

    @service(batch=8)
    def policy_eval(self, states: list[int]) -> list[int]:
        return [state * self.weights for state in states]

    @service
    async def wait(self, seconds: float) -> float:
        await asyncio.sleep(seconds)
        return seconds

    @service(response=False)
    def push(self, what: str) -> None:
        self.pushed.append(what)

    @service(response=False, retries=0)
    def push_once(self, what: str) -> None:
        self.pushed.append(what)

    @service
    def fail(self, message: str) -> None:
        raise ValueError(message)

    @service
    def leave(self) -> None:
        raise SystemExit(1)

    @event_handler("policy_update", latest=True)
    def update(self, weights: int) -> None:
        self.weights = weights


def test_every_form_of_call_works_and_events_reach_handlers():
    actor = Actor()
    with serving(actor) as run:
        assert run.solver.call("policy_eval", 2) == 2
        assert list(run.solver.map("actor.policy_eval", range(20))) == list(range(20))
        run.events.fire("policy_update", 10)
        until(lambda: run.solver.call("actor.policy_eval", 1) == 10)
        for name in ("push", "push_once"):
            run.solver.call(f"actor.{name}", name)
        until(lambda: actor.pushed == ["push", "push_once"])
        with pytest.raises(RemoteFailure, match="words"):
            run.solver.call("actor.fail", "words")
        with pytest.raises(DeadlinePassed):
            run.solver.call("actor.wait", 30.0, deadline=0.1)
        handle = run.solver.send("actor.wait", 30.0)
        assert handle.cancel() and isinstance(handle.exception(), CallCancelled)

        async def scenario() -> list[float]:
            return await asyncio.gather(*(run.solver.acall("actor.wait", 0.001) for _ in range(5)))

        assert asyncio.run(scenario()) == [0.001] * 5
        with pytest.raises(NoSuchService):
            run.solver.options(deadline=1.0).call("actor.policy_evil")


def test_calls_outlive_a_cut_connection():
    actor = Actor()
    with serving(actor) as run:
        run.events.fire("policy_update", 5)
        until(lambda: actor.weights == 5)
        run.broker.cut()
        assert run.solver.call("actor.policy_eval", 1) == 5


def test_middleware_runs_at_both_ends_and_at_boot_and_shutdown():
    log = list[str]()

    class Noted(Middleware):
        def before_send(self, call: Call) -> None:
            call.headers["sent"] = 1

        def before_run(self, call: Call) -> None:
            log.append(f"run {call.headers['sent']}")

        def before_worker_boot(self, worker: str) -> None:
            log.append("boot")

        def after_worker_shutdown(self, worker: str) -> None:
            log.append("shutdown")

    with serving(Actor(), middleware=[Noted()]) as run:
        run.solver.call("actor.policy_eval", 1)
    assert log == ["boot", "run 1", "shutdown"]


def test_nothing_is_left_behind_even_by_a_service_that_ends_its_worker():
    before = {thread.name for thread in threading.enumerate()}
    for _ in range(3):
        with serving(Actor()) as run:
            run.solver.send("actor.leave")
            until(lambda: state.should_stop == 1)
        assert state.should_stop is None

    def left() -> set[str]:
        return ({thread.name for thread in threading.enumerate()} - before) & {"services", "async-services"}

    until(lambda: not left(), "the end of all threads")


def test_what_is_no_worker_is_refused():
    with pytest.raises(ConfigurationError, match="is not a worker"), serving(object()):
        pass


def test_the_example_of_the_page_runs():
    (example,) = re.findall(r"```python\n(from tasks\.testing.*?)```", PAGE.read_text(), flags=re.DOTALL)
    names: dict[str, Any] = {"Actor": Actor}
    exec(compile(example, str(PAGE), "exec"), names)
    names["test_an_actor_obeys_new_weights"]()
