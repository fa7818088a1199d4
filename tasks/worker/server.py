"""Serving: one Celery worker that offers the methods of workers as tasks, received in the way that the broker allows.

On RabbitMQ a step of the worker's blueprint runs a ConsumerLoop (consumer_loop.py), and Celery's consumer leaves the
services' queues alone. On a Redis broker, which has no direct reply-to, Celery's consumer takes the calls and
celery_strategy.py gathers them.
"""

from __future__ import annotations

import functools
import inspect
import os
import socket
import threading
from collections.abc import Callable, Sequence
from typing import Any

from celery import bootsteps
from celery.utils.log import get_logger
from celery.worker import state
from celery.worker.control import inspect_command

from tasks import brokers
from tasks.admin.registry import Directory
from tasks.app.outcome import ENDS_WORKER, failed
from tasks.codec.decoder import unpack
from tasks.events import Subscription
from tasks.events.retained import Retained
from tasks.middleware import Middleware, checked_middleware
from tasks.service import Spec, Subscribed, Worker, event_handler, handlers_of, role_of, services_of
from tasks.topology import Topology
from tasks.worker.batching import BatchTask
from tasks.worker.celery_worker import make_worker, run_worker
from tasks.worker.consumer_loop import ConsumerLoop
from tasks.worker.hooks import Hooks, boot, shut_down
from tasks.worker.pool import stop_worker
from tasks.worker.task_events import given_rate
from warren.errors import ConfigurationError

logger = get_logger(__name__)

POLL_EVERY = 0.2  # s between checks whether the worker has ended while an event handler waits for its pool


class ServiceTask(BatchTask):
    """The Celery task of one service."""

    abstract = True
    plural = False
    acks_late = True


def register(app: Any, workers: Sequence[Worker], hooks: Hooks | None = None) -> dict[str, Any]:
    """Make each service of `workers` a task of `app`; return the tasks by service name. `hooks`: of user middleware.

    Raises ConfigurationError when there is no service, or two of the same name.
    """
    made: dict[str, Any] = {}
    for worker in workers:
        for spec in services_of(worker):
            if spec.name in made:
                raise ConfigurationError(f"service {spec.name} is offered twice; give one of the classes another role")
            made[spec.name] = _task(app, worker, spec, hooks)
    if not made:
        names = ", ".join(type(worker).__name__ for worker in workers) or "no worker"
        raise ConfigurationError(f"{names}: no method is a service; mark one with @service")
    return made


def _task(app: Any, worker: Worker, spec: Spec, hooks: Hooks | None) -> Any:
    method = getattr(worker, spec.name.partition(".")[2])
    app.tasks.pop(spec.name, None)
    return app.task(
        method,
        base=ServiceTask,
        name=spec.name,
        batch=spec.batch,
        minimum=spec.minimum,
        wait=spec.wait,
        isolate=spec.isolate,
        concurrency=spec.concurrency,
        ignore_result=not spec.response,
        deliveries=1 + spec.retries,
        priorities=spec.priorities,
        hooks=hooks,
        retry_on=getattr(method, "__retry_on__", None),
        time_limits=getattr(method, "__time_limits__", None),
        typing=False,
        shared=False,
        __header__=functools.partial(method),  # a `link_error` is then sent the failed call's id, not run on the spot
    )


class ServiceStep(bootsteps.StartStopStep):  # type: ignore[misc]
    """The step of Celery's blueprint that starts and stops the ConsumerLoop, the worker's `warren_receiver`."""

    requires = ("celery.worker.components:Pool",)

    def __init__(self, worker: Any, **_: Any) -> None:
        worker.warren_receiver = None

    def start(self, worker: Any) -> None:
        receiver = getattr(worker.app, "warren_receiver", None)
        if receiver is not None:
            worker.warren_receiver = receiver
            receiver.start(worker.hostname)

    def stop(self, worker: Any) -> None:
        if worker.warren_receiver is not None:
            worker.warren_receiver.stop()

    def terminate(self, worker: Any) -> None:
        if worker.warren_receiver is not None:
            worker.warren_receiver.stop(timeout=1.0)


@inspect_command(name="services")  # type: ignore[untyped-decorator]
def _services(control: Any, **_: Any) -> dict[str, Any] | None:
    """Answer Celery's remote control: what this worker serves, how much it has done, how busy it is."""
    receiver = getattr(control.app, "warren_receiver", None)
    if receiver is None:
        return None
    return {"host": socket.gethostname(), "pid": os.getpid(), **receiver.status()}


def _prefetch(specs: Sequence[Spec]) -> int:
    """Return how many calls Celery's consumer holds: those that plain services need, and twice what async ones run."""
    plain = max([1, *(2 * spec.batch for spec in specs if not spec.concurrency)])
    return plain + sum(2 * spec.concurrency * spec.batch for spec in specs)


class Serving:
    """A Celery worker that serves `workers`. `name` is its node name on this host.

    `event_rate`: share of calls that Flower is told of, 0 to 1; None for WARREN_EVENT_RATE, 0 by default.
    `queues`: more Celery queues to consume, for ordinary tasks. `middleware`: around the calls of the services; None
    for what the process has installed (tasks.middleware.install).
    """

    def __init__(
        self,
        app: Any,
        topology: Topology,
        workers: Sequence[Worker],
        name: str,
        *,
        event_rate: float | None = None,
        queues: Sequence[Any] = (),
        log_level: str = "INFO",
        middleware: Sequence[Middleware] | None = None,
    ) -> None:
        self.app, self.topology, self.workers = app, topology, list(workers)
        self.specs = [spec for worker in self.workers for spec in services_of(worker)]
        self.middleware = checked_middleware(middleware)
        self.tasks = register(app, self.workers, Hooks.of(self.middleware))
        self._fast = brokers.of(app).direct_reply
        self._subscriptions: list[Subscription] = []
        self._ended = threading.Event()
        own = list(queues)
        if self._fast:
            rate = (given_rate() or 0.0) if event_rate is None else event_rate
            app.warren_receiver = ConsumerLoop(app, topology, self.workers, self.tasks, rate)
        else:
            own += [
                topology.service_queue(spec.name, spec.response, spec.bound, spec.priorities) for spec in self.specs
            ]
        app.steps["worker"].add(ServiceStep)
        for queue in own:
            app.amqp.queues.add(queue)
        names = [queue.name for queue in own] or None
        self.worker = make_worker(app, name, names, log_level=log_level, prefetch_multiplier=_prefetch(self.specs))
        if not own:
            app.amqp.queues.deselect(list(app.amqp.queues))

    def run(self, on_ready: Callable[[], None] | None = None, on_stopping: Callable[[], None] | None = None) -> int:
        """Serve until told to stop; return the exit status. `on_ready` runs once every service is served.

        Raises ConfigurationError when a queue exists on the broker with other arguments than the service asks for.
        """

        def ready() -> None:
            if self._fast:
                if not self._served():
                    return
            else:
                Directory(self.app, self.topology).enter(self.specs)
                self._subscribe()
            if on_ready is not None:
                on_ready()

        boot(self.middleware, self.worker.hostname)
        try:
            status = run_worker(self.worker, ready, on_stopping or (lambda: None))
        finally:
            self._ended.set()
            for subscription in self._subscriptions:
                subscription.stop()
            shut_down(self.middleware, self.worker.hostname)
        failure = self.app.warren_receiver.failure if self._fast else None
        if isinstance(failure, ConfigurationError):
            raise failure
        return status

    def _served(self) -> bool:
        """Wait until every service is served; return False if this worker is told to stop, or cannot serve, first."""
        loop: ConsumerLoop = self.app.warren_receiver
        while not loop.ready.wait(POLL_EVERY):
            stopping = any(
                told is not None and told is not False for told in (state.should_stop, state.should_terminate)
            )
            if stopping or loop.failure is not None:
                return False
        return True

    def stop(self) -> None:
        """Ask for a warm stop, from any thread."""
        stop_worker()

    def _subscribe(self) -> None:
        """Subscribe to events on a Redis broker: a thread receives them, and their handlers run in the pool."""
        retained = Retained(self.app, self.topology)
        for worker in self.workers:
            for method, on in handlers_of(worker).items():
                mark = event_handler(on.event, latest=on.latest, bound=on.bound)
                handler = self._in_pool(getattr(worker, method))
                handlers = {on.event: mark(handler)}
                subscriber = f"{role_of(worker)}.{method}"

                def catch_up(on: Subscribed = on, handler: Callable[[Any], None] = handler) -> None:
                    retained.subscribe([on.event])
                    body = retained.newest(on.event)
                    if body is not None:
                        handler(unpack(body))

                found = Subscription(
                    self.app, self.topology, handlers, subscriber, on_connected=catch_up if on.retained else None
                )
                self._subscriptions.append(found.start())

    def _in_pool(self, handler: Callable[[Any], Any]) -> Callable[[Any], None]:
        """Return a handler that runs `handler` in the pool and waits: further events stay in their bounded queue."""

        def hand_over(payload: Any) -> None:
            done, pool = threading.Event(), self.worker.pool

            def ended(error: BaseException | None) -> None:
                done.set()
                if isinstance(error, ENDS_WORKER):
                    pool.end(error)
                elif error is not None:
                    logger.error("an event handler failed\n%s", failed(error).traceback)

            if inspect.iscoroutinefunction(handler):
                pool.event_loop().spawn(handler, payload, ended)
            else:
                handle = handler if pool.turn is None else pool.turn.taken_by(handler)
                pool.apply_async(_guarded, (handle, payload, done))
            while not done.wait(POLL_EVERY) and not self._ended.is_set():
                pass

        return hand_over


def _guarded(handler: Callable[[Any], None], payload: Any, done: threading.Event) -> None:
    try:
        handler(payload)
    except ENDS_WORKER:
        raise
    except BaseException as error:
        logger.error("an event handler failed\n%s", failed(error).traceback)
    finally:
        done.set()
