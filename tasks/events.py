"""Events on fanout exchanges: fired by anyone, received by all who subscribed; only the newest waits for the slow."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from celery.utils.log import get_logger
from kombu.mixins import ConsumerMixin

from tasks import codec
from tasks.topology import Topology
from warren.errors import WireError

logger = get_logger(__name__)

WEIGHTS = "weights"  # {"player", "version", "step", "data": safetensors bytes}
STATUS = "status"  # the learner's figures, several times a second; its last carries the outcome of the run

Handler = Callable[[Any], None]


class EventDispatcher:
    """Fires events: `EventDispatcher(app, topology).fire("weights", payload)`. Safe to use from any thread."""

    def __init__(self, app: Any, topology: Topology) -> None:
        self.app, self.topology = app, topology

    def fire(self, name: str, payload: Any = None) -> None:
        """Send `payload` to every present subscriber of `name`. Raises CodecError for what cannot be encoded."""
        exchange = self.topology.event(name)
        with self.app.producer_pool.acquire(block=True) as producer:
            producer.publish(
                payload,
                exchange=exchange,
                routing_key="",  # a Redis broker makes it a part of the channel's name
                serializer=codec.NAME,
                declare=[exchange],
                retry=True,
                retry_policy=self.app.conf.task_publish_retry_policy,
            )


class Subscription(ConsumerMixin):  # type: ignore[misc]
    """A thread with a connection and queues of its own that hands the newest event of each name to its handler.

    RabbitMQ keeps one waiting event a queue (max-length 1, drop-head), prefetch keeps one more under way: a
    subscriber that was slow or paused continues with the newest, not with a backlog. After a lost connection it
    subscribes anew and calls `on_connected`, so that the owner can fetch what it missed.
    """

    def __init__(
        self,
        app: Any,
        topology: Topology,
        handlers: Mapping[str, Handler],
        subscriber: str,
        on_connected: Callable[[], None] | None = None,
    ) -> None:
        self.connection = app.connection_for_read(heartbeat=app.conf.broker_heartbeat)
        self.queues = {name: topology.event_queue(name, subscriber) for name in handlers}
        self.handlers, self._on_connected = handlers, on_connected
        self._newest: dict[str, Any] = {}
        self._subscribed = threading.Event()
        self._thread = threading.Thread(target=self.run, name=f"events-{subscriber}", daemon=True)

    def start(self, timeout: float = 30.0) -> Subscription:
        """Start the thread and return once every queue is bound: what is fired from now on arrives."""
        self._thread.start()
        if not self._subscribed.wait(timeout):
            raise WireError(f"could not subscribe to {', '.join(self.handlers)} within {timeout:.0f} s")
        return self

    def stop(self) -> None:
        """Leave; the queues go with the connection."""
        self.should_stop = True
        if self._thread.is_alive():
            self._thread.join(timeout=5.0)

    def get_consumers(self, consumer_class: Any, channel: Any) -> Iterable[Any]:
        return [
            consumer_class(
                [queue],
                on_message=lambda message, name=name: self._keep(name, message),
                accept=[codec.NAME],
                prefetch_count=1,
            )
            for name, queue in self.queues.items()
        ]

    def on_consume_ready(self, connection: Any, channel: Any, consumers: Any, **_: Any) -> None:
        if self._on_connected is not None:
            self._on_connected()
        self._subscribed.set()

    def on_connection_error(self, exc: Exception, interval: float) -> None:
        logger.warning("events: connection lost (%s), trying again in %.1f s", exc, interval)

    def consume(
        self, limit: int | None = None, timeout: float | None = None, safety_interval: float = 1, **_: Any
    ) -> Any:
        with self.consumer_context() as (connection, _, _):
            while not self.should_stop:
                try:
                    # While something is kept, look only whether a newer one has arrived already.
                    connection.drain_events(timeout=0.002 if self._newest else safety_interval)
                except TimeoutError:
                    if self._newest:
                        self._deliver()
                    else:
                        connection.heartbeat_check()
                yield

    def _keep(self, name: str, message: Any) -> None:
        self._newest[name] = message
        message.ack()

    def _deliver(self) -> None:
        kept, self._newest = self._newest, {}
        for name, message in kept.items():
            try:
                self.handlers[name](message.decode())
            except Exception:
                logger.exception("the handler of event %r failed", name)
