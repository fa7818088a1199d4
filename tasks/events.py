"""Events on fanout exchanges: fired by anyone, received by all who subscribed; only the newest waits for the slow."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from celery.utils.log import get_logger
from kombu.exceptions import OperationalError
from kombu.mixins import ConsumerMixin

from tasks import claims, codec
from tasks.topology import Topology
from warren.errors import BrokerError, WireError

logger = get_logger(__name__)

WEIGHTS = "weights"  # {"player", "version", "step", "data": safetensors bytes}
STATUS = "status"  # the learner's figures, several times a second; its last carries the outcome of the run
EVALUATION = "evaluation"  # what a league's evaluator found

CLAIM_LASTS = 60.0  # s that a long event can be fetched: a newer one has replaced it by then, or the pool has it
NEWER_WITHIN = 0.002  # s that an event is kept, in case that a newer one is on its way
KEPT_FOR = 0.5  # s after which it is handed on although newer ones keep arriving
AGAIN_AFTER = 1.0  # s between tries to subscribe, and of an `on_connected` that failed

Handler = Callable[[Any], None]


def of_player(name: str, player: str) -> str:
    """The event `name` of one of several players: only the newest event of a name waits, and theirs must not mix."""
    return f"{name}.{player}"


class EventDispatcher:
    """Fires events: `EventDispatcher(app, topology).fire("weights", payload)`. Safe to use from any thread."""

    def __init__(self, app: Any, topology: Topology) -> None:
        self.app, self.topology = app, topology

    def fire(self, name: str, payload: Any = None) -> None:
        """Send `payload` to every present subscriber of `name`.

        Raises CodecError for what cannot be encoded, BrokerError when the broker stays away for some seconds.
        """
        exchange = self.topology.event(name)
        try:
            with self.app.producer_pool.acquire(block=True) as producer, claims.lasting(CLAIM_LASTS):
                producer.publish(
                    payload,
                    exchange=exchange,
                    routing_key="",  # a Redis broker makes it a part of the channel's name
                    serializer=codec.NAME,
                    declare=[exchange],
                    retry=True,
                    retry_policy=self.app.conf.task_publish_retry_policy,
                )
        except OperationalError as error:
            raise BrokerError(f"event {name!r} was not sent, since the broker is away: {error}") from error


class Subscription(ConsumerMixin):  # type: ignore[misc]
    """A thread with a connection and queues of its own that hands the newest event of each name to its handler.

    RabbitMQ keeps one waiting event a queue (max-length 1, drop-head), prefetch keeps one more under way: a
    subscriber that was slow or paused continues with the newest, not with a backlog. After a lost connection it
    subscribes anew and calls `on_connected`, so that the owner can fetch what it missed; while that raises, it is
    called again every second.
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
        self.handlers, self._topology, self._subscriber = handlers, topology, subscriber
        self._on_connected, self._catch_up_at = on_connected, 0.0
        self._newest: dict[str, Any] = {}
        self._kept_since = 0.0
        self._subscribed = threading.Event()
        self._thread = threading.Thread(target=self._serve, name=f"events-{subscriber}", daemon=True)

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

    def _serve(self) -> None:
        errors = (*self.connection.connection_errors, *self.connection.channel_errors, OperationalError)
        while not self.should_stop:
            try:
                for _ in self.consume():
                    pass
            except Exception as error:  # of whatever kind: a thread that ended would do so unseen
                logger.warning(
                    "events: connection lost, subscribing anew (%s: %s)",
                    *(type(error).__name__, error),
                    exc_info=not isinstance(error, errors),
                )
                time.sleep(AGAIN_AFTER)

    def get_consumers(self, consumer_class: Any, channel: Any) -> Iterable[Any]:
        # Queues of a new name each time: the old ones are locked until the broker, too, knows that the old connection
        # is gone, which takes it up to two heartbeats.
        return [
            consumer_class(
                [self._topology.event_queue(name, self._subscriber)],
                on_message=lambda message, name=name: self._keep(name, message),
                accept=[codec.NAME],
                prefetch_count=1,
            )
            for name in self.handlers
        ]

    def on_connection_error(self, exc: Exception, interval: float) -> None:
        logger.warning("events: cannot connect (%s), trying again in %.1f s", exc, interval)

    def consume(
        self, limit: int | None = None, timeout: float | None = None, safety_interval: float = 1, **_: Any
    ) -> Any:
        with self.consumer_context() as (connection, _, _):
            # On a Redis broker it is the first look for events that subscribes to them.
            with contextlib.suppress(TimeoutError):
                connection.drain_events(timeout=NEWER_WITHIN)
            self._catch_up_at = time.monotonic()
            self._catch_up()
            self._subscribed.set()
            while not self.should_stop:
                if self._catch_up_at:
                    self._catch_up()
                try:
                    # While something is kept, look only whether a newer one has arrived already.
                    connection.drain_events(timeout=NEWER_WITHIN if self._newest else safety_interval)
                except TimeoutError:
                    if self._newest:
                        self._deliver()
                    else:
                        connection.heartbeat_check()
                yield

    def _catch_up(self) -> None:
        """Call `on_connected` when it is due; what it needs (Redis, say) may be away for a moment itself."""
        if time.monotonic() < self._catch_up_at:
            return
        try:
            if self._on_connected is not None:
                self._on_connected()
            self._catch_up_at = 0.0
        except Exception as error:
            logger.warning("events: could not catch up, trying again: %s: %s", type(error).__name__, error)
            self._catch_up_at = time.monotonic() + AGAIN_AFTER

    def _keep(self, name: str, message: Any) -> None:
        if not self._newest:
            self._kept_since = time.monotonic()
        self._newest[name] = message
        message.ack()
        # Here and not in `consume`: on a Redis broker, kombu does not come back while events keep arriving.
        if time.monotonic() - self._kept_since > KEPT_FOR:
            self._deliver()

    def _deliver(self) -> None:
        kept, self._newest = self._newest, {}
        for name, message in kept.items():
            try:
                self.handlers[name](message.decode())
            except Exception:
                logger.exception("the handler of event %r failed", name)
