"""How waiting messages become one call: up to `batch` are held, run together, then acknowledged.

A message stays unacknowledged until the call that used it has returned, so what a killed worker held is delivered
again: nothing that the broker confirmed is lost. `run` is the one place where a batch is run; `strategy` brings it
what Celery receives (any broker; the learner's segments), receiver.py what services receive on RabbitMQ, faster.
"""

from __future__ import annotations

import os
import threading
import time
import traceback as tracebacks
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from billiard.einfo import ExceptionInfo
from celery import signals
from celery.utils.imports import symbol_by_name
from celery.utils.log import get_logger
from celery.worker.request import create_request_cls
from celery.worker.state import task_reserved

from tasks.app.celery_consumer import Task
from warren.errors import ConfigurationError, DeliveriesExceeded

logger = get_logger(__name__)

Arguments = tuple[Sequence[Any], dict[str, Any]]  # of one call: positional, by keyword


@dataclass(frozen=True)
class Failed:
    """The outcome of a call that raised, with the worker's traceback as text."""

    error: Exception
    traceback: str

    @property
    def kind(self) -> str:
        """Name of the error's class, with its module where that is not the language's own."""
        cls = type(self.error)
        return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"


def failed(error: Exception) -> Failed:
    """`error` as an outcome."""
    return Failed(error, "".join(tracebacks.format_exception(error)))


def run(name: str, function: Callable[..., Any], batch: int, calls: Sequence[Arguments], isolate: bool) -> list[Any]:
    """One outcome a call, in order: a result, or Failed.

    `batch` 1: `function` gets each call's arguments. Over 1: it gets the list of them, once; it may return an exception
    in the place of a result, which fails that call alone. When it raises, all fail; with `isolate` each of several is
    run again alone first, so that only those fail that are at fault.
    """
    if batch == 1:
        return [_run_one(function, args, kwargs) for args, kwargs in calls]
    try:
        results = list(function([_item(name, args, kwargs) for args, kwargs in calls]))
        if len(results) != len(calls):
            raise ValueError(
                f"{name} was called with {len(calls)} calls and returned {len(results)} results; "
                "a batch service returns one result a call, in order"
            )
    except Exception as error:
        if isolate and len(calls) > 1:
            logger.warning("%s failed for a batch of %d (%r); running each call alone", name, len(calls), error)
            return [run(name, function, batch, [call], False)[0] for call in calls]
        logger.exception("%s failed for all of %d calls", name, len(calls))
        return [failed(error)] * len(calls)
    return [failed(result) if isinstance(result, Exception) else result for result in results]


def _run_one(function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    try:
        return function(*args, **kwargs)
    except Exception as error:
        return failed(error)


def _item(name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """What one call contributes to the list that a batch function receives."""
    if kwargs:
        raise TypeError(f"{name} runs calls in batches, so it takes no arguments by keyword; got {', '.join(kwargs)}")
    return args[0] if len(args) == 1 else tuple(args)


_outcome = threading.local()


def replay(task: Any, trace: Callable[..., Any], outcome: Any, call_id: str, call: Arguments, request: Any) -> Any:
    """Celery's own bookkeeping for a call that has been run: result backend, chord, callbacks, chain, signals.

    The ExceptionInfo of a failure, else None.
    """
    _outcome.value = (outcome,)
    try:
        result, info, *_ = trace(call_id, call[0], call[1], request)
    finally:
        _outcome.value = None
    return result if info is not None and isinstance(result, ExceptionInfo) else None


class BatchTask(Task):
    """A task whose function receives a list of `batch` calls' arguments and returns as many results, in order.

    A call of one positional argument gives that argument, a call of several gives their tuple. A batch leaves when
    `minimum` calls wait (default: `batch`), or `wait` s after its first.
    """

    abstract = True
    batch = 1
    minimum: int | None = None
    wait: float | None = None
    isolate = False
    plural = True  # the function receives a list even where batch is 1
    Strategy = "tasks.worker.batching:strategy"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Within `replay`: the outcome there is. Otherwise (`task.apply`, a worker with another strategy): run it."""
        kept = getattr(_outcome, "value", None)
        if kept is None:
            (outcome,) = self.run_calls([(args, kwargs)])
        else:
            (outcome,) = kept
        if isinstance(outcome, Failed):
            raise outcome.error
        return outcome

    def run_calls(self, calls: Sequence[Arguments]) -> list[Any]:
        """One outcome a call."""
        return run(self.name, self.run, max(self.batch, 2 if self.plural else 1), calls, self.isolate)


def strategy(task: Any, app: Any, consumer: Any) -> Callable[..., None]:
    """A Celery receive strategy: hold requests until enough of them wait, then run them as one pool job."""
    pool, eventer = consumer.pool, consumer.event_dispatcher
    request_class = create_request_cls(symbol_by_name(task.Request), task, pool, consumer.hostname, eventer, app=app)
    minimum = task.batch if task.minimum is None else task.minimum
    held = consumer.initial_prefetch_count
    if task.wait is None and held and held < minimum:
        raise ConfigurationError(
            f"{task.name} runs {minimum} calls together, and its worker may hold {held}; set prefetch to {minimum}"
        )
    waiting: deque[Any] = deque()
    jobs: deque[None] = deque()  # one for each pool job that has not yet taken its calls; both threads change it
    timer: Any = None

    def receive(message: Any, body: Any, ack: Any, reject: Any, callbacks: Any) -> None:
        request = request_class(
            message,
            on_ack=ack,
            on_reject=reject,
            app=app,
            hostname=consumer.hostname,
            eventer=eventer,
            task=task,
            connection_errors=consumer.connection_errors,
            body=message.body,
            headers=message.headers,
            decoded=False,
            utc=app.uses_utc_timezone(),
        )
        if (request.expires or request.id in consumer.controller.state.revoked) and request.revoked():
            return
        signals.task_received.send(sender=consumer, request=request)
        request.send_event("task-received", name=request.name, args="", kwargs="")
        task_reserved(request)
        for callback in callbacks or ():
            callback(request)
        waiting.append(request)
        leave()

    def leave() -> None:
        nonlocal timer
        if len(waiting) - len(jobs) * task.batch >= minimum:
            dispatch()
        elif task.wait is not None and timer is None and waiting:
            timer = consumer.timer.call_after(task.wait, waited)

    def waited() -> None:
        nonlocal timer
        timer = None
        if waiting and not jobs:
            dispatch()

    def dispatch() -> None:
        jobs.append(None)
        pool.apply_async(take_and_run, callback=lambda ended: settle(*ended))

    def take_and_run() -> Any:
        # In the pool's thread. What runs is taken now, not when the job was made: by now more may wait.
        jobs.pop()
        taken: list[Any] = []
        while waiting and len(taken) < task.batch:
            taken.append(waiting.popleft())
        started = time.monotonic()
        return taken, run_batch(task, taken), started

    return receive


def run_batch(task: Any, requests: Sequence[Any]) -> list[ExceptionInfo | None]:
    """In the pool's thread: one call, then each result, or error, to whoever waits for it."""
    readable: list[tuple[Any, Arguments]] = []
    failures: dict[str, Any] = {}
    for request in requests:
        try:
            readable.append((request, (request.args, request.kwargs)))
        except Exception as error:  # a body that cannot be decoded fails its own call
            failures[request.id] = ExceptionInfo((type(error), error, error.__traceback__))
            task.backend.mark_as_failure(request.id, error, store_result=request.store_errors)
    calls = [call for _, call in readable]
    if any(request.redelivered for request, _ in readable):
        ids = [request.id if request.redelivered else None for request, _ in readable]
        results = task.app.warren_deliveries.run(task.name, task.deliveries, task.run_calls, calls, ids)
        outcomes = [failed(result) if isinstance(result, DeliveriesExceeded) else result for result in results]
    else:
        outcomes = task.run_calls(calls) if calls else []
    for (request, call), outcome in zip(readable, outcomes, strict=True):
        context = {**request.request_dict, **(request._payload[2] or {})}
        failures[request.id] = replay(task, task.__trace__, outcome, request.id, call, context)
    return [failures[request.id] for request in requests]


def settle(requests: Sequence[Any], failures: Sequence[ExceptionInfo | None], started: float) -> None:
    """In the event loop: acknowledge what was used; what failed goes to the dead-letter queue."""
    runtime = time.monotonic() - started
    for request, failure in zip(requests, failures, strict=True):
        request.on_accepted(os.getpid(), started)
        if failure is None:
            request.on_success((False, "", runtime))
        else:
            request.on_failure(failure, return_ok=True)
