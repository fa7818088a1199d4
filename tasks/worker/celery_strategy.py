"""Batches of tasks in Celery's own consumer: requests are held until enough wait, then run as one pool job."""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from operator import attrgetter
from typing import Any

from celery import signals
from celery.utils.log import get_logger
from celery.worker.state import task_ready, task_reserved

from tasks import compat
from tasks.app.formats import answering
from tasks.app.outcome import EXPIRED, REVOKED, Again, Dropped, NotYet, dropped, failed
from tasks.app.protocol import problem_with_delay, seconds_until
from tasks.app.revoking import is_revoked
from tasks.app.steps import drive
from tasks.service import Spec
from tasks.worker.async_runs import Run
from tasks.worker.batch_scheduler import BatchScheduler
from tasks.worker.bookkeeping import AWAY, record
from tasks.worker.celery_async import AsyncTasks, steps_of
from tasks.worker.event_loop import Turn
from tasks.worker.middleware import Chain, Middleware
from tasks.worker.running import recording
from tasks.worker.service_queue import ServiceQueue
from tasks.worker.timers import longest_hold
from warren.errors import ConfigurationError

logger = get_logger(__name__)

TOLERANCE = 0.01  # s by which a timer may be late without being set anew
AGAIN_AFTER = 1.0  # s until calls whose outcome could not be recorded go back to their queue


def strategy(task: Any, app: Any, consumer: Any) -> Callable[..., None]:
    """Return a Celery receive strategy that holds requests until enough wait, then runs them as one pool job."""
    request_class = compat.request_class(task, consumer, app)
    minimum = task.batch if task.minimum is None else task.minimum
    held = consumer.initial_prefetch_count
    if task.wait is None and held and held < minimum:
        raise ConfigurationError(
            f"{task.name} runs {minimum} calls together, and its worker may hold {held}; set prefetch to {minimum}"
        )
    spec = Spec(
        task.name, True, max(task.batch, 1), minimum, task.wait, task.deliveries - 1,
        concurrency=task.concurrency, priorities=task.priorities,
    )  # fmt: skip
    gathering = Gathering.of(consumer)
    queue = gathering.enter(ServiceQueue(spec, task, None, Chain([_Deadlines()], lambda queue, calls: [])))

    def receive(message: Any, body: Any, ack: Any, reject: Any, callbacks: Any) -> None:
        request = request_class(
            message,
            on_ack=ack,
            on_reject=reject,
            app=app,
            hostname=consumer.hostname,
            eventer=consumer.event_dispatcher,
            task=task,
            connection_errors=consumer.connection_errors,
            body=message.body,
            headers=message.headers,
            decoded=False,
            utc=app.uses_utc_timezone(),
        )
        if request.expires or request.id in consumer.controller.state.revoked:
            with answering(request.content_type):
                gone = request.revoked()
            if gone:
                if task.hooks is not None:
                    task.hooks.drop(task.name, request, EXPIRED if request.maybe_expire() else REVOKED)
                return
        signals.task_received.send(sender=consumer, request=request)
        request.send_event("task-received", name=request.name, args="", kwargs="")
        task_reserved(request)
        for callback in callbacks or ():
            callback(request)
        eta = message.headers.get("eta")
        if eta and (seconds := seconds_until(eta)) > 0:
            gathering.add_later(queue, request, seconds)
        else:
            gathering.add(queue, request)

    return receive


class _Deadlines(Middleware):
    """Drops calls that expired or were revoked after they came."""

    def before_run(self, queue: ServiceQueue, call: Any) -> str | None:
        """See Middleware."""
        if call.expires and call.maybe_expire():
            return EXPIRED
        return REVOKED if is_revoked(call.request_dict) else None


class Gathering:
    """The requests of all BatchTasks that one consumer holds. A pool job runs the batch that is next when it begins."""

    def __init__(self, consumer: Any) -> None:
        self._consumer, self._queues = consumer, dict[str, ServiceQueue]()
        self._lock = threading.Lock()  # guards what follows: the event loop adds, the pool's thread takes
        self._dropped: list[tuple[ServiceQueue, Any, str]] = []
        self._scheduler = BatchScheduler((), self._drop, _age)
        self._jobs = 0  # jobs that have not yet taken their calls
        self._timer: Any = None
        self._due = 0.0  # when the timer ends, by time.monotonic()
        self.tasks: AsyncTasks | None = None  # those of `async def` services

    @classmethod
    def of(cls, consumer: Any) -> Gathering:
        """Return the gathering of `consumer`, made with its first task."""
        found: Gathering | None = getattr(consumer, "warren_gathering", None)
        if found is None:
            found = consumer.warren_gathering = cls(consumer)
        return found

    def enter(self, queue: ServiceQueue) -> ServiceQueue:
        """Enter the queue of a task; calls that an earlier one holds came on a lost connection, and come again."""
        with self._lock:
            self._scheduler.clear()
            self._queues[queue.spec.name] = queue
            self._scheduler = BatchScheduler(self._queues.values(), self._drop, _age)
        self._timer = None  # it may have gone with that connection
        if queue.spec.concurrency and self.tasks is None:
            self.tasks = AsyncTasks(self._consumer.pool, _record_run, self._settle_run, self._lock)
        return queue

    def add(self, queue: ServiceQueue, request: Any) -> None:
        """Take in a request. In the event loop."""
        request.number, request.gathered = next(_numbers), queue
        with self._lock:
            self._scheduler.add(queue, request)
        self._dispatch()

    def add_later(self, queue: ServiceQueue, request: Any, seconds: float) -> None:
        """Take in a request when it is due, in so many s; one that is due too late has failed. In the event loop."""
        consumer = self._consumer
        problem = problem_with_delay(seconds, longest_hold(queue.task.app))
        if problem is not None:
            settle(consumer, [request], [_record(queue.task, request, failed(ValueError(problem)))], time.monotonic())
            return
        self.hold(queue, request, seconds)

    def hold(self, queue: ServiceQueue, request: Any, seconds: float) -> None:
        """Take in a request again in so many s. In the event loop."""
        consumer = self._consumer

        def due() -> None:
            if self._queues.get(queue.spec.name) is queue:  # else its connection is lost, and it comes again
                consumer.qos.decrement_eventually()
                self.add(queue, request)

        consumer.qos.increment_eventually()  # so that others pass it
        consumer.timer.call_after(seconds, due)

    def _settle_run(self, run: Run, endings: list[Ending]) -> None:
        """End the calls that ran in the event loop, and begin others in their place. In the consumer's loop."""
        with self._lock:
            self._scheduler.go_on(run.queue)
        settle(self._consumer, run.calls if endings else (), endings, run.started)
        self._dispatch()

    def _drop(self, queue: ServiceQueue, request: Any, why: str) -> None:
        self._dropped.append((queue, request, why))

    def _dispatch(self) -> None:
        """Make a job for each batch that may run, and a timer for those that wait for more calls. In the event loop."""
        with self._lock:
            patience = self._scheduler.patience()  # read first: a batch whose time ends in between is ready below
            missing = sum(map(_ready, self._queues.values())) - self._jobs
            self._jobs += max(missing, 0)
        for _ in range(missing):
            self._start_job()
        if patience:
            self._look_within(patience)

    def _look_within(self, seconds: float) -> None:
        """Have the timer look again in so many s, or sooner if it is set already."""
        due = time.monotonic() + seconds
        if self._timer is not None:
            if self._due <= due + TOLERANCE:
                return
            self._timer.cancel()  # it was set for a service that waits longer
        self._timer, self._due = self._consumer.timer.call_after(seconds, self._waited), due

    def _waited(self) -> None:
        self._timer = None
        self._dispatch()

    def _start_job(self) -> None:
        pool, taken = self._consumer.pool, list[tuple[Any, Any]]()

        def take_and_run() -> tuple[list[Ending], float, Future[Any] | None]:
            # In the pool's thread. The calls are taken now, not when the job was made: by now more may wait.
            with self._lock:
                self._jobs -= 1
                stopping = self.tasks is not None and self.tasks.stopping
                batch = None if stopping else self._scheduler.next(lambda: False)
                tasks = self.tasks if batch and batch[0].spec.concurrency else None
                if tasks is not None:
                    tasks.expect()
                gone, self._dropped = self._dropped, []
            taken.extend((request, dropped(why)) for _, request, why in gone)
            started = time.monotonic()
            endings = [_drop(queue.task, request, why) for queue, request, why in gone]
            if batch and tasks is not None:
                tasks.begin(*batch)
            elif batch:
                taken.extend((request, None) for request in batch[1])
                endings += run_batch(batch[0].task, batch[1], pool.turn)
            return endings, started, recording()

        def ended(endings: list[Ending], started: float, recorded: Future[Any] | None) -> None:
            def end() -> None:
                settle(self._consumer, requests(), endings, started)

            self._dispatch()
            if recorded is None:
                end()
            else:
                pool.once(recorded, end)

        def failed_to_run(_: Any) -> None:
            self._dispatch()
            settle(self._consumer, requests(), [UNRECORDED] * len(taken), time.monotonic())

        def requests() -> list[Any]:
            return [request for request, _ in taken]

        pool.apply_async(take_and_run, callback=lambda outcome: ended(*outcome), error_callback=failed_to_run)


_numbers = itertools.count()  # number requests in the order in which they came
_age: Callable[[Any], int] = attrgetter("number")


def _ready(queue: ServiceQueue) -> int:
    """Return how many batches of `queue` may run now."""
    spec = queue.spec
    whole, rest = divmod(len(queue.waiting), spec.batch)
    waited = rest > 0 and spec.wait is not None and time.monotonic() - queue.since >= spec.wait
    ready = whole + (waited or rest >= spec.minimum)
    return min(ready, spec.concurrency - queue.running) if spec.concurrency else ready


UNRECORDED = "unrecorded"  # a call that could not run, or whose outcome could not be given to result backend or chord
DROPPED = "dropped"
Ending = Any  # one call's: the ExceptionInfo of its failure, UNRECORDED, DROPPED, an Again, or None for a success


def run_batch(task: Any, requests: Sequence[Any], turn: Turn | None = None) -> list[Ending]:
    """Run requests as one batch in the pool's thread and record each outcome; return what is to be done with each."""
    if not requests:
        return []
    outcomes = drive(steps_of(task, requests), task.run_calls if turn is None else turn.taken_by(task.run_calls))
    return [_record(task, request, outcome) for request, outcome in zip(requests, outcomes, strict=True)]


def _record_run(run: Run) -> list[Ending]:
    task = run.queue.task
    return [_record(task, request, outcome) for request, outcome in zip(run.calls, run.outcomes or (), strict=True)]


def _drop(task: Any, request: Any, why: str) -> Ending:
    if task.hooks is not None:
        task.hooks.drop(task.name, request, why)
    return _record(task, request, dropped(why))


def _record(task: Any, request: Any, outcome: Any) -> Ending:
    if isinstance(outcome, NotYet):
        logger.warning("%s cannot run for now, so it is run again: %s", request.id, outcome.message)
        return UNRECORDED
    if isinstance(outcome, Again):
        return outcome
    context = {**request.request_dict, **compat.links_of(request)}
    try:
        call = (request.args, request.kwargs)
        info = record(task, compat.tracer_of(task), outcome, call, context, request.content_type)
    except AWAY as error:  # for longer than Celery's own patience
        logger.warning("the outcome of %s cannot be recorded, so it will run again: %s", request.id, error)
        return UNRECORDED
    return DROPPED if info is None and isinstance(outcome, Dropped) else info


def settle(consumer: Any, requests: Sequence[Any], endings: Sequence[Ending], started: float) -> None:
    """Acknowledge or reject requests by their endings, or hold them for another try. In the event loop."""
    runtime = time.monotonic() - started
    again = [request for request, ending in zip(requests, endings, strict=True) if ending is UNRECORDED]
    if again:
        consumer.timer.call_after(AGAIN_AFTER, _give_back, (again,))
    for request, ending in zip(requests, endings, strict=True):
        if ending is UNRECORDED:
            continue
        if isinstance(ending, Again):
            Gathering.of(consumer).hold(request.gathered, request, ending.seconds)
            continue
        if ending is DROPPED:
            task_ready(request)
            request.acknowledge()
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
