"""How BatchTask is received by Celery's own consumer: requests are held until enough wait, then run as one pool job."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

from celery import signals
from celery.utils.log import get_logger
from celery.worker.state import task_ready, task_reserved

from tasks import compat
from tasks.worker.running import Arguments, failed, recording, replay
from warren.errors import ConfigurationError, DeliveriesExceeded

logger = get_logger(__name__)

AGAIN_AFTER = 1.0  # s until calls whose outcome could not be recorded go back to their queue


def strategy(task: Any, app: Any, consumer: Any) -> Callable[..., None]:
    """A Celery receive strategy: hold requests until enough of them wait, then run them as one pool job."""
    pool, eventer = consumer.pool, consumer.event_dispatcher
    request_class = compat.request_class(task, consumer, app)
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
        taken: list[Any] = []

        def take_and_run() -> tuple[list[Ending], float, Future[Any] | None]:
            # In the pool's thread. What runs is taken now, not when the job was made: by now more may wait.
            jobs.pop()
            while waiting and len(taken) < task.batch:
                taken.append(waiting.popleft())
            started = time.monotonic()
            return run_batch(task, taken), started, recording()

        def ended(endings: list[Ending], started: float, recorded: Future[Any] | None) -> None:
            if recorded is None:
                settle(consumer, taken, endings, started)
            else:
                pool.once(recorded, lambda: settle(consumer, taken, endings, started))

        def failed_to_run(_: Any) -> None:
            settle(consumer, taken, [UNRECORDED] * len(taken), time.monotonic())

        pool.apply_async(take_and_run, callback=lambda outcome: ended(*outcome), error_callback=failed_to_run)

    return receive


UNRECORDED = "unrecorded"  # a call that ran, but whose outcome the result backend or the chord could not be given
Ending = Any  # of one call: the ExceptionInfo of its failure, UNRECORDED, or None for a success


def run_batch(task: Any, requests: Sequence[Any]) -> list[Ending]:
    """In the pool's thread: one call, then each result, or error, to whoever waits for it."""
    calls: list[Arguments] = [(request.args, request.kwargs) for request in requests]
    if any(request.redelivered for request in requests) or task.deliveries == 1:
        ids = [request.id if request.redelivered else None for request in requests]
        first = [None if request.redelivered else request.id for request in requests]
        results = task.app.warren_deliveries.run(task.name, task.deliveries, task.run_calls, calls, ids, first)
        outcomes = [failed(result) if isinstance(result, DeliveriesExceeded) else result for result in results]
    else:
        outcomes = task.run_calls(calls) if calls else []
    return [_record(task, *each) for each in zip(requests, calls, outcomes, strict=True)]


def _record(task: Any, request: Any, call: Arguments, outcome: Any) -> Ending:
    context = {**request.request_dict, **compat.links_of(request)}
    try:
        return replay(task, compat.tracer_of(task), outcome, request.id, call, context)
    except Exception as error:  # Redis is away, for longer than Celery's own patience
        logger.warning("the outcome of %s cannot be recorded, so it will run again: %s", request.id, error)
        return UNRECORDED


def settle(consumer: Any, requests: Sequence[Any], endings: Sequence[Ending], started: float) -> None:
    """In the event loop: acknowledge the calls that succeeded; those that failed go to the dead-letter queue."""
    runtime = time.monotonic() - started
    again = [request for request, ending in zip(requests, endings, strict=True) if ending is UNRECORDED]
    if again:
        consumer.timer.call_after(AGAIN_AFTER, _give_back, (again,))
    for request, ending in zip(requests, endings, strict=True):
        if ending is UNRECORDED:
            continue
        request.on_accepted(os.getpid(), started)
        if ending is None:
            request.on_success((False, "", runtime))
        else:
            request.on_failure(ending, return_ok=True)


def _give_back(requests: Sequence[Any]) -> None:
    for request in requests:
        task_ready(request)
        request.reject(requeue=True)
