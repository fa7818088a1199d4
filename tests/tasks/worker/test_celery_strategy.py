"""Tests of batches that Celery's consumer receives: each message is settled even if code around the call fails."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest
from celery import Celery
from celery.worker import state as worker_state

from tasks import codec
from tasks.app.redelivery import Deliveries
from tasks.topology import Topology
from tasks.worker import celery_strategy
from tasks.worker.batching import BatchTask
from tasks.worker.celery_strategy import AGAIN_AFTER, UNRECORDED, run_batch, settle, strategy
from tasks.worker.pool import OneThreadPool
from warren.errors import ConfigurationError


class Request:
    """A stand-in for Celery's request of a message."""

    redelivered, _payload, expires, content_type = False, ((), {}, {}), None, codec.CONTENT_TYPE

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

    def acknowledge(self) -> None:
        self.ends.append("acknowledged")

    def send_event(self, *_: Any, **__: Any) -> None:
        pass

    def reject(self, requeue: bool) -> None:
        self.ends.append("requeued" if requeue else "rejected")


def learn(calls: list[Any]) -> list[Any]:
    return calls


class Timer:
    """A stand-in for Celery's timer: tests run what is due."""

    def __init__(self) -> None:
        self.due: list[Any] = []

    def call_after(self, seconds: float, function: Any, args: Any = ()) -> None:
        assert seconds == AGAIN_AFTER
        self.due.append(lambda: function(*args))


@pytest.fixture
def task(monkeypatch: pytest.MonkeyPatch) -> Any:
    # A unique name: finalizing an app also adds the shared tasks of all other apps.
    app = Celery("strategy", broker="memory://", backend="cache+memory://", set_as_current=False)
    app.warren_deliveries = Deliveries("redis://127.0.0.1:1/0", Topology("strategy"))
    made = app.task(learn, base=BatchTask, name="strategy.learn", batch=4, shared=False)
    app.finalize()
    app.tasks["strategy.learn"].__trace__ = None
    return made


@pytest.fixture
def consumer() -> Any:
    return SimpleNamespace(timer=Timer())


def test_a_call_whose_outcome_cannot_be_recorded_is_requeued_shortly(task, consumer, monkeypatch):
    def record(task: Any, trace: Any, outcome: Any, call: Any, request: Any, content_type: str) -> None:
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


class Receiving:
    """A strategy with a pool and a timer that do their work when told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *tasks: Any, pool: Any = None) -> None:
        self.jobs: list[Any] = []
        self.timers: list[tuple[float, Any]] = []
        self.ran: list[list[str]] = []
        self.requests = list[Request]()
        pool = pool or SimpleNamespace(turn=None, apply_async=lambda target, callback, error_callback: self.jobs.append(
            (target, callback, error_callback)))  # fmt: skip
        timer = SimpleNamespace(call_after=self.call_after)
        monkeypatch.setattr(celery_strategy.compat, "request_class", lambda *_: lambda *_, **__: self.requests[-1])
        monkeypatch.setattr(celery_strategy, "task_reserved", lambda request: None)
        monkeypatch.setattr(celery_strategy, "task_ready", lambda request: None)
        monkeypatch.setattr(celery_strategy, "record", lambda *_: None)
        self.consumer: Any = SimpleNamespace(
            pool=pool, event_dispatcher=None, hostname="h", initial_prefetch_count=8, timer=timer,
            controller=SimpleNamespace(state=SimpleNamespace(revoked=set())), connection_errors=(),
        )  # fmt: skip
        self.receivers = {task.name: strategy(task, task.app, self.consumer) for task in tasks}

    def call_after(self, seconds: float, function: Any, args: Any = ()) -> Any:
        entry = seconds, lambda: function(*args)
        self.timers.append(entry)
        return SimpleNamespace(cancel=lambda: self.timers.remove(entry))

    def arrive(self, task: Any, *names: str) -> None:
        for name in names:
            self.requests.append(Request(name))
            self.receivers[task.name](SimpleNamespace(body=b"", headers={}), None, None, None, None)

    def run_job(self) -> None:
        target, callback, failed = self.jobs.pop(0)
        try:
            outcome = target()
        except Exception:
            failed(None)
        else:
            callback(outcome)

    def ends(self) -> dict[str, list[str]]:
        return {request.id: request.ends for request in self.requests}


def test_a_job_that_fails_outside_its_calls_requeues_all_of_them(task, monkeypatch):
    receiving = Receiving(monkeypatch, task)
    monkeypatch.setattr(celery_strategy, "run_batch", lambda task, taken, turn: (_ for _ in ()).throw(OSError("away")))
    receiving.arrive(task, *"abcd")
    receiving.run_job()
    ((seconds, again),) = receiving.timers
    assert seconds == AGAIN_AFTER
    again()
    assert receiving.ends() == {name: ["requeued"] for name in "abcd"}


def test_a_warm_stop_waits_for_a_call_that_the_event_loop_is_about_to_get(task, monkeypatch):
    """Without that, it would be marked as begun and not run: delivered again, it might be given up."""
    taken, told, arrived, pool = threading.Event(), threading.Event(), threading.Event(), OneThreadPool(1)

    def record(task: Any, trace: Any, outcome: Any, call: Any, request: Any, content_type: str) -> None:
        if request["id"] == "revoked":
            taken.set()
            assert told.wait(60.0)

    async def later(call: Any) -> Any:
        return call

    made = task.app.task(later, base=BatchTask, name="strategy.later", concurrency=1, plural=False, shared=False)
    made.__trace__ = None
    with ThreadPoolExecutor(1) as threads:
        threads.submit(pool.start).result(60.0)  # in this thread, it would listen for signals
    receiving = Receiving(monkeypatch, made, pool=pool)
    loop, tasks = pool.event_loop(), receiving.consumer.warren_gathering.tasks
    wait, stop = tasks._idle.wait, loop.stop
    monkeypatch.setattr(celery_strategy, "record", record)
    monkeypatch.setattr(worker_state, "revoked", {"revoked"})
    monkeypatch.setattr(tasks._idle, "wait", lambda seconds: tasks._idle.is_set() or told.set() or wait(60.0))
    monkeypatch.setattr(loop, "stop", lambda: (stop(), told.set()))
    pool.apply_async(arrived.wait, (60.0,))
    receiving.arrive(made, "revoked", "a")  # the first is recorded as such before the second begins
    arrived.set()
    assert taken.wait(60.0)
    with ThreadPoolExecutor(1) as threads:
        threads.submit(pool.stop).result(60.0)
    assert receiving.ends() == {"revoked": ["acknowledged"], "a": ["acknowledged"]}


def test_calls_left_over_from_a_waiting_batch_have_a_timer(task, monkeypatch):
    task.wait = 100.0
    receiving = Receiving(monkeypatch, task)
    receiving.arrive(task, *"abc")
    ((_, waited),) = receiving.timers
    receiving.timers.clear()
    receiving.arrive(task, "d")  # makes a job; more calls arrive and time passes while the pool is busy
    receiving.arrive(task, "e", "f")
    waited()
    receiving.run_job()
    ended = {name: ["acknowledged"] for name in "abcd"}
    assert receiving.ends() == {**ended, "e": [], "f": []}
    assert not receiving.jobs and len(receiving.timers) == 1
    assert 0 < receiving.timers[0][0] <= task.wait
    monkeypatch.setattr(celery_strategy.time, "monotonic", lambda now=celery_strategy.time.monotonic: now() + 200.0)
    receiving.timers.pop()[1]()
    receiving.run_job()
    assert receiving.ends() == {**ended, "e": ["acknowledged"], "f": ["acknowledged"]}


def test_a_service_that_waits_less_does_not_wait_as_long_as_another(task, monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(celery_strategy.time, "monotonic", lambda: now[0])
    task.wait = 100.0
    other = task.app.task(learn, base=BatchTask, name="strategy.other", batch=2, wait=0.5, shared=False)
    other.__trace__ = None
    receiving = Receiving(monkeypatch, task, other)
    receiving.arrive(task, "a")
    assert [seconds for seconds, _ in receiving.timers] == [100.0]
    receiving.arrive(other, "x")
    receiving.arrive(task, "b")
    ((seconds, waited),) = receiving.timers
    assert seconds == 0.5
    now[0] += 1.0
    receiving.timers.clear()
    waited()
    receiving.run_job()
    assert receiving.ends() == {"a": [], "x": ["acknowledged"], "b": []}
    assert [seconds for seconds, _ in receiving.timers] == [99.0]


def test_a_call_that_expired_in_the_worker_does_not_run(task, monkeypatch):
    receiving = Receiving(monkeypatch, task)
    ran: list[Any] = []
    monkeypatch.setattr(task, "run", lambda calls: ran.append(calls) or calls)
    receiving.arrive(task, *"abc")
    receiving.requests[1].expires, receiving.requests[1].maybe_expire = True, lambda: True
    receiving.arrive(task, *"de")
    while receiving.jobs:
        receiving.run_job()
    assert ran == [["a", "c", "d", "e"]]
    assert receiving.ends() == {name: ["acknowledged"] for name in "abcde"}


def test_the_task_with_the_oldest_call_runs_first(task, monkeypatch):
    other = task.app.task(learn, base=BatchTask, name="strategy.other", batch=2, shared=False)
    other.__trace__ = None
    receiving = Receiving(monkeypatch, task, other)
    ran: list[Any] = []
    monkeypatch.setattr(
        celery_strategy, "run_batch", lambda task, taken, turn: ran.append(task.name) or [None] * len(taken)
    )
    receiving.arrive(task, "a", "b")
    receiving.arrive(other, "x", "y")
    receiving.arrive(task, "c", "d")
    while receiving.jobs:
        receiving.run_job()
    assert ran == ["strategy.learn", "strategy.other"]


def test_a_batch_that_its_worker_may_not_hold_is_refused_at_the_start(task):
    consumer: Any = SimpleNamespace(
        pool=SimpleNamespace(apply_async=None), event_dispatcher=None, hostname="h", initial_prefetch_count=2
    )
    with pytest.raises(ConfigurationError, match="set prefetch to 4"):
        strategy(task, task.app, consumer)
