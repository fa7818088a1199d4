"""How a worker turns waiting messages into one call: `batch` messages are held, run together, then acknowledged.

A message stays unacknowledged until the call that used it has returned, so what a killed worker held is delivered
again: nothing that the broker confirmed is lost.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from billiard.einfo import ExceptionInfo
from celery import Task, signals
from celery.app.task import Context
from celery.utils.imports import symbol_by_name
from celery.utils.log import get_logger
from celery.worker.request import create_request_cls
from celery.worker.state import task_reserved

logger = get_logger(__name__)


class BatchTask(Task):  # type: ignore[misc]
    """A task whose function receives a list of `batch` calls' arguments and returns as many results, in order.

    A call of one positional argument gives that argument, a call of several gives their tuple.
    """

    abstract = True
    batch = 1
    Strategy = "tasks.batching:strategy"


def arguments_of(request: Any) -> Any:
    """What one call contributes to the list that a batch task receives."""
    args = request.args
    return args[0] if len(args) == 1 else tuple(args)


def strategy(task: Any, app: Any, consumer: Any) -> Callable[..., None]:
    """A Celery receive strategy: hold requests until `task.batch` of them wait, then run them as one pool job."""
    pool, eventer = consumer.pool, consumer.event_dispatcher
    request_class = create_request_cls(symbol_by_name(task.Request), task, pool, consumer.hostname, eventer, app=app)
    waiting: deque[Any] = deque()

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
        if len(waiting) >= task.batch:
            dispatch([waiting.popleft() for _ in range(task.batch)])

    def dispatch(requests: list[Any]) -> None:
        pool.apply_async(
            run_batch,
            (task, requests),
            accept_callback=lambda pid, at: [request.on_accepted(pid, at) for request in requests],
            callback=lambda outcome: settle(requests, outcome),
        )

    return receive


def run_batch(task: Any, requests: Sequence[Any]) -> tuple[list[ExceptionInfo | None], float]:
    """In the pool's thread: one call, then each result, or error, to whoever waits for it.

    The function may return an exception in the place of a result: that call fails, the others do not. When it raises,
    all fail.
    """
    started = time.monotonic()
    try:
        results = list(task.run([arguments_of(request) for request in requests]))
        if len(results) != len(requests):
            raise ValueError(
                f"{task.name} was called with {len(requests)} calls and returned {len(results)} results; "
                "a batch service returns one result a call, in order"
            )
    except Exception as error:
        logger.exception("%s failed for all of %d calls", task.name, len(requests))
        results = [error] * len(requests)
    failures = [_answer(task, request, result) for request, result in zip(requests, results, strict=True)]
    return failures, time.monotonic() - started


def _answer(task: Any, request: Any, result: Any) -> ExceptionInfo | None:
    """Store one result and count it in its chord; the failure's description when there is one."""
    context = Context(request.request_dict, **(request._payload[2] or {}))
    if not isinstance(result, Exception):
        task.backend.mark_as_done(request.id, result, request=context, store_result=not request.ignore_result)
        return None
    failure = ExceptionInfo((type(result), result, result.__traceback__))
    task.backend.mark_as_failure(
        request.id, result, failure.traceback, request=context, store_result=request.store_errors
    )
    return failure


def settle(requests: Sequence[Any], outcome: tuple[Sequence[ExceptionInfo | None], float]) -> None:
    """In the event loop: acknowledge what was used; what failed goes to the dead-letter queue."""
    failures, runtime = outcome
    for request, failure in zip(requests, failures, strict=True):
        if failure is None:
            request.on_success((False, "", runtime))
        else:
            request.on_failure(failure, return_ok=True)
