"""Batches received by Celery's consumer: each message is dealt with, whatever fails around the call."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from celery import Celery

from tasks.worker import celery_strategy
from tasks.worker.batching import BatchTask
from tasks.worker.celery_strategy import AGAIN_AFTER, UNRECORDED, run_batch, settle, strategy
from warren.errors import ConfigurationError


class Request:
    """What Celery makes of a message."""

    redelivered, _payload = False, ((), {}, {})

    def __init__(self, name: str) -> None:
        self.name = "strategy.learn"
        self.id, self.args, self.kwargs = name, (name,), dict[str, Any]()
        self.request_dict = {"id": name}
        self.ends: list[str] = []

    def on_accepted(self, pid: int, started: float) -> None:
        pass

    def on_success(self, result: Any) -> None:
        self.ends.append("acknowledged")

    def on_failure(self, info: Any, return_ok: bool) -> None:
        self.ends.append("dead letter")

    def reject(self, requeue: bool) -> None:
        self.ends.append("requeued" if requeue else "rejected")


def learn(calls: list[Any]) -> list[Any]:
    return calls


class Timer:
    """Celery's timer, by hand."""

    def __init__(self) -> None:
        self.due: list[Any] = []

    def call_after(self, seconds: float, function: Any, args: Any = ()) -> None:
        assert seconds == AGAIN_AFTER
        self.due.append(lambda: function(*args))


@pytest.fixture
def task(monkeypatch: pytest.MonkeyPatch) -> Any:
    # A name of its own: to finalize an app enters the shared tasks of all others too.
    app = Celery("strategy", broker="memory://", backend="cache+memory://", set_as_current=False)
    made = app.task(learn, base=BatchTask, name="strategy.learn", batch=4, shared=False)
    app.finalize()
    app.tasks["strategy.learn"].__trace__ = None
    return made


@pytest.fixture
def consumer() -> Any:
    return SimpleNamespace(timer=Timer())


def test_a_call_whose_outcome_cannot_be_recorded_goes_back_to_its_queue_a_little_later(task, consumer, monkeypatch):
    def record(task: Any, trace: Any, outcome: Any, call: Any, request: Any) -> None:
        if request["id"] == "b":
            raise ConnectionError("Redis is away")

    monkeypatch.setattr(celery_strategy, "record", record)
    monkeypatch.setattr(celery_strategy, "task_ready", lambda request: None)
    requests = [Request(name) for name in "abc"]
    endings = run_batch(task, requests)
    assert endings == [None, UNRECORDED, None]
    settle(consumer, requests, endings, 0.0)
    assert [request.ends for request in requests] == [["acknowledged"], [], ["acknowledged"]]
    (again,) = consumer.timer.due
    again()
    assert requests[1].ends == ["requeued"]


def test_a_job_that_fails_outside_of_its_calls_gives_back_all_that_it_took(task, monkeypatch):
    jobs: list[Any] = []
    pool = SimpleNamespace(apply_async=lambda target, callback, error_callback: jobs.append((target, error_callback)))
    timer, requests = Timer(), [Request(name) for name in "abcd"]
    ready = iter(requests)
    monkeypatch.setattr(celery_strategy.compat, "request_class", lambda *_: lambda *_, **__: next(ready))
    monkeypatch.setattr(celery_strategy, "task_reserved", lambda request: None)
    monkeypatch.setattr(celery_strategy, "task_ready", lambda request: None)
    monkeypatch.setattr(celery_strategy, "run_batch", lambda task, taken: (_ for _ in ()).throw(OSError("away")))
    for request in requests:
        request.expires, request.send_event = None, lambda *_, **__: None
    state = SimpleNamespace(revoked=set())
    consumer: Any = SimpleNamespace(
        pool=pool, event_dispatcher=None, hostname="h", initial_prefetch_count=8, timer=timer,
        controller=SimpleNamespace(state=state), connection_errors=(),
    )  # fmt: skip
    receive = strategy(task, task.app, consumer)
    message = SimpleNamespace(body=b"", headers={})
    for _ in requests:
        receive(message, None, None, None, None)
    ((target, failed),) = jobs
    with pytest.raises(OSError, match="away"):
        target()
    failed(None)
    (again,) = timer.due
    again()
    assert [request.ends for request in requests] == [["requeued"]] * 4


def test_a_batch_that_its_worker_may_not_hold_is_refused_at_the_start(task):
    consumer: Any = SimpleNamespace(
        pool=SimpleNamespace(apply_async=None), event_dispatcher=None, hostname="h", initial_prefetch_count=2
    )
    with pytest.raises(ConfigurationError, match="set prefetch to 4"):
        strategy(task, task.app, consumer)
