"""A worker's end of the fast path: one thread with a connection of its own that serves all services of its workers.

Read all that has arrived, decode, gather, call once, write all replies and one acknowledgement, read on. Celery's own
consumer, its event loop and its pool take no part; Celery still starts and stops this (see server.py), knows each
service as a task, and lists and counts it for Flower.

    drain -> Intake -> BatchScheduler -> _run_batch (through the middleware) -> Outcomes -> Outbox -> drain
          -> EventInbox               -> AsyncServices, for `async def` ones -> Outcomes
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import redis
from celery.utils.log import get_logger

from tasks import brokers, compat
from tasks.admin.registry import Directory
from tasks.amqp.frames import Delivery
from tasks.app.outcome import not_yet, outcome_of
from tasks.brokers import GONE, Connection
from tasks.events.retained import Retained
from tasks.service import Worker, services_of
from tasks.topology import Topology
from tasks.worker.async_runs import Run
from tasks.worker.async_services import AsyncServices
from tasks.worker.batch_scheduler import BatchScheduler
from tasks.worker.consumption import Consumption
from tasks.worker.deadlines import Deadlines
from tasks.worker.event_inbox import EventInbox
from tasks.worker.intake import Intake
from tasks.worker.metrics import Metrics
from tasks.worker.middleware import Chain, Middleware
from tasks.worker.outcomes import Outcomes
from tasks.worker.pool import end_worker
from tasks.worker.replies import Outbox
from tasks.worker.retries import DeliveryLimit
from tasks.worker.service_queue import Call, ServiceQueue
from tasks.worker.settlement import FLUSH_AFTER, Settlement
from tasks.worker.task_events import TaskEvents
from tasks.worker.timers import AGAIN_AFTER, Timers
from warren.errors import BrokerError, ConfigurationError

logger = get_logger(__name__)

FINISH_WITHIN = 2.0  # s after being told to stop in which calls already held are run; the rest is handed back
RECONNECT_AFTER = (0.1, 2.0)  # s between attempts, doubled from the first to the second


class ConsumerLoop:
    """Serves `workers` until stopped. `tasks`: service name -> its Celery task (a `server.ServiceTask`).

    `event_rate`: share of calls that send Celery's task events, for Flower. `failure`: the error that ended it.
    """

    def __init__(
        self, app: Any, topology: Topology, workers: Sequence[Worker], tasks: dict[str, Any], event_rate: float = 0.0
    ) -> None:
        self._app, self._topology, self._workers, self._tasks = app, topology, workers, tasks
        self._event_rate = event_rate
        self._events = EventInbox(topology, Retained(app, topology), workers)
        self._deadlines, self._metrics = Deadlines(), Metrics()
        self._task_events: TaskEvents | None = None
        self._queues: dict[str, ServiceQueue] = {}
        self._scheduler = BatchScheduler((), self._dropped)
        self._async: AsyncServices | None = None
        self._timers = Timers()
        self._consumption = Consumption(topology, Directory(app, topology), self._queues, self._events, self._timers)
        self._outbox: Outbox  # the present connection's, as are the next three
        self._outcomes: Outcomes
        self._intake: Intake
        self._settlement: Settlement
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="services", daemon=True)
        self.hostname = ""
        self.ready = threading.Event()
        self.failure: BaseException | None = None
        self.started_at = time.time()

    def start(self, hostname: str) -> None:
        """Begin to serve; `ready` is set while every queue is consumed."""
        self.hostname = hostname
        self._task_events = TaskEvents(self._app, hostname, self._event_rate) if self._event_rate else None
        specs = [spec for worker in self._workers for spec in services_of(worker)]
        run_calls: Callable[..., list[Any]] = _run_calls
        if self._events.has_async or any(spec.concurrency for spec in specs):
            self._async = AsyncServices(self._settle_async)
            self._events.use(self._async)
            run_calls = self._async.turn.taken_by(run_calls)
        for spec in specs:
            task = self._tasks[spec.name]
            trace = compat.new_tracer(self._app, task, hostname)
            self._queues[spec.name] = ServiceQueue(spec, task, trace, Chain(self._middleware(), run_calls))
        self._scheduler = BatchScheduler(self._queues.values(), self._dropped)
        self._thread.start()

    def _middleware(self) -> list[Middleware]:
        events = [] if self._task_events is None else [self._task_events]
        return [self._deadlines, DeliveryLimit(self._app.warren_deliveries), self._metrics, *events]

    def stop(self, timeout: float | None = None) -> None:
        """Finish the calls that are held, hand back those that cannot be finished soon, and leave."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(timeout)

    def status(self) -> dict[str, Any]:
        """Return what is served here, how much has been done, and how busy this worker is, for discovery."""
        up = max(time.time() - self.started_at, 1e-9)
        services = {
            name: {
                **queue.spec.as_dict(),
                **queue.counts,
                "waiting": len(queue.waiting),
                "running": queue.running,
                "error": queue.task.failures.newest,
            }
            for name, queue in self._queues.items()
        }
        busy = self._metrics.busy + self._events.busy
        return {"since": self.started_at, "busy": min(busy / up, 1.0), "services": services}

    def revoked(self) -> None:
        """Cancel revoked calls that run in the event loop; waiting calls are looked at when their turn comes."""
        if self._async is not None:
            self._async.revoked()

    # The thread.

    def _run(self) -> None:
        pause = RECONNECT_AFTER[0]
        while not self._stopping.is_set():
            link: Connection | None = None
            try:
                link = brokers.of(self._app).connect()
                self._open(link)
                pause = RECONNECT_AFTER[0]
                self._serve(link)
                self._leave(link)
            except GONE as error:
                if not self._stopping.is_set():
                    logger.warning("services: connection to the broker lost (%s); connecting anew", error)
            except redis.RedisError as error:
                logger.warning("services: Redis is away (%s); connecting anew", error)
            except ConfigurationError as error:
                logger.critical("services: %s", error)
                self._end(error)
            except (SystemExit, KeyboardInterrupt) as error:
                self._flush_last()
                self._end(error)
            except Exception:
                logger.critical("services: failed outside the code of any service; connecting anew", exc_info=True)
            except BaseException as error:  # a thread that ended would do so unseen, and the worker would seem to live
                self._end(error)
            finally:
                self.ready.clear()
                if self._async is not None:
                    self._async.lose()
                if link is not None:
                    link.close()
            self._stopping.wait(pause)
            pause = min(2 * pause, RECONNECT_AFTER[1])
        if self._async is not None:
            self._async.stop()
        if self._task_events is not None:
            self._task_events.close()

    def _end(self, error: BaseException) -> None:
        self.failure = error
        self._stopping.set()
        end_worker(error)

    def _flush_last(self) -> None:
        try:
            self._outbox.flush()
        except GONE as error:
            logger.warning("services: the last replies could not be written: %s", error)

    def _open(self, link: Connection) -> None:
        self._scheduler.clear()
        self._timers.clear()
        self._outbox = Outbox(link, getattr(self._app, "warren_claims", None))
        self._outcomes = Outcomes(self._app, self._topology, self.hostname, self._outbox, self._timers)
        self._intake = Intake(self._scheduler, self._outcomes, self._outbox, self._timers)
        self._settlement = Settlement(self._scheduler, self._outcomes, self._outbox, self._timers, self._deadlines)
        self._deadlines.read_clock()
        self._consumption.open(link)
        if self._async is not None:
            link.wake_by(self._async.descriptor)
        self.ready.set()

    def _serve(self, link: Connection) -> None:
        def poll() -> bool:
            more = link.drain(0.0)
            self._take(more)
            return bool(more)

        timed = self._timers.entries
        while not self._stopping.is_set():
            deliveries = link.drain(self._patience())
            if deliveries:
                self._take(deliveries)
            if self._async is not None:
                self._resume(self._async)
            if timed and timed[0][0] <= time.monotonic():
                self._timers.run_next()
            while (batch := self._scheduler.next(poll)) is not None:
                self._run_batch(*batch)
            self._outbox.flush()

    def _patience(self) -> float | None:
        """Return the s for which there is nothing to do unless something arrives; None without limit."""
        patience = self._scheduler.patience()
        timed = self._timers.entries
        if timed and timed[0][0] < time.monotonic() + AGAIN_AFTER:
            due = max(0.0, timed[0][0] - time.monotonic())
            return due if patience is None else min(due, patience)
        return patience

    # Receiving.

    def _take(self, deliveries: list[Delivery]) -> None:
        """Sort what arrived: calls to their queues, events to their handlers at once."""
        self._deadlines.read_clock()
        queues, held = self._consumption.by_tag, self._outbox.held
        events: list[Delivery] = []
        for delivery in deliveries:
            held[delivery.tag] = None
            queue = queues.get(delivery.consumer)
            if queue is None:
                events.append(delivery)
                continue
            try:
                self._intake.accept(queue, delivery)
            except GONE:
                raise
            except Exception as error:  # one message must not end the connection: it would come again
                self._intake.refuse(queue, delivery, None, repr(error))
        if events:
            self._events.take(events, self._outbox)

    def _dropped(self, queue: ServiceQueue, call: Call, why: str) -> None:
        self._settlement.drop(queue, call, why)

    # Running.

    def _run_batch(self, queue: ServiceQueue, calls: list[Call]) -> None:
        if self._async is not None:
            if queue.spec.concurrency:
                self._async.begin(queue, calls, self._outbox)
                return
            self._resume(self._async)
        if self._outbox.pending and queue.slowest > FLUSH_AFTER:
            self._outbox.flush()  # a reply that is ready does not wait for these calls
        started = time.monotonic()
        outcomes = _outcomes_of(queue, calls)
        self._settlement.settle(queue, calls, outcomes, time.monotonic() - started)

    # Batches of `async def` services.

    def _resume(self, services: AsyncServices) -> None:
        """Go on with batches whose step in the event loop has ended."""
        if services.ended:
            self._deadlines.read_clock()
            services.resume()

    def _settle_async(self, run: Run) -> None:
        """Settle a batch; one that began on a connection that is lost is delivered again."""
        self._scheduler.go_on(run.queue)
        if run.outbox is self._outbox:
            self._settlement.settle_run(run)

    # Leaving.

    def _leave(self, link: Connection) -> None:
        """Consume no more, run the calls that are held while there is time, hand the rest back unchanged."""
        self._consumption.cancel(link)
        while deliveries := link.drain(0.0):
            self._take(deliveries)
        limit = time.monotonic() + FINISH_WITHIN
        self._run_held(limit)
        while self._async is not None and self._async.busy and (left := limit - time.monotonic()) > 0:
            self._outbox.flush()
            link.drain(left)
            self._resume(self._async)
            self._run_held(limit)
        if self._async is not None:
            self._async.give_up()
        self._consumption.hand_back(self._outbox)

    def _run_held(self, limit: float) -> None:
        for queue in self._queues.values():
            while queue.waiting and not queue.full and time.monotonic() < limit and self._scheduler.ready(queue):
                if calls := self._scheduler.take(queue):
                    self._run_batch(queue, calls)


def _run_calls(queue: ServiceQueue, calls: list[Call]) -> list[Any]:
    outcomes: list[Any] = queue.task.run_calls(calls)
    return outcomes


def _outcomes_of(queue: ServiceQueue, calls: list[Call]) -> list[Any]:
    """Run a batch through its middleware. Any error of that fails the calls, except one that ends the worker."""
    try:
        outcomes = queue.chain.run(queue, calls)
        if len(outcomes) != len(calls):
            raise ValueError(f"{len(calls)} calls of {queue.spec.name} have {len(outcomes)} outcomes")
    except BrokerError as error:
        return [not_yet(error)] * len(calls)
    except BaseException as error:
        return [outcome_of(error)] * len(calls)
    return outcomes
