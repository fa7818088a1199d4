"""The only module that touches private attributes of celery, kombu, py-amqp and Python.

An upgrade may change any of them silently; tests/tasks/test_compat.py has a test for each, which then fails with
its name. A table there lists what other modules import that is public but undocumented, and what they use of it; an
import that is in neither place fails a test. All holds for these versions: celery 5.7, kombu 5.7, amqp 5.4.
"""

from __future__ import annotations

import copy
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

import redis
from celery import Celery
from celery.app.trace import build_tracer
from celery.app.utils import Settings
from celery.apps import worker as worker_app
from celery.backends.base import COMPRESSED_PAYLOAD_MAGIC
from celery.backends.redis import RedisBackend, ResultConsumer
from celery.concurrency.base import BasePool
from celery.loaders.app import AppLoader
from celery.utils.imports import symbol_by_name
from celery.worker.request import create_request_cls
from kombu.transport import TRANSPORT_ALIASES
from redis.backoff import NoBackoff
from redis.client import PubSub
from redis.retry import Retry

from warren import redis_client

# py-amqp


def take_over(
    connection: Any, read_frame: Callable[..., tuple[int, int, bytes]], write: Callable[[Any], None]
) -> tuple[Any, bytes]:
    """Take over an open `amqp.Connection`: return its socket, and what was read from it and not used yet.

    From now on the connection reads its frames by `read_frame` and writes its bytes by `write`.
    """
    transport = connection.transport
    unused, transport._read_buffer = bytes(transport._read_buffer), b""
    transport.read_frame = read_frame
    transport._write = write
    return transport.sock, unused


def hand_frame(connection: Any, frame: Any) -> None:
    """Pass a frame that was read for an `amqp.Connection` on to it: a tuple of type, channel and payload."""
    connection.on_inbound_frame(frame)


def drop(connection: Any) -> None:
    """Close the socket of an `amqp.Connection` without telling the broker. Safe to call again."""
    connection.collect()


# kombu


def redis_queue_length(channel: Any, queue: str) -> int:
    """Return how many messages wait in `queue` of a Redis broker.

    kombu's passive declaration asks whether the list exists without the run's key prefix: always "no such queue".
    """
    return int(channel._size(queue))


def redis_of(connection: Any) -> redis.Redis:
    """Return a client of the Redis that an open kombu connection to a Redis broker speaks with."""
    return redis.Redis(connection_pool=connection.default_channel.pool)


def use_transport(scheme: str, path: str) -> None:
    """Open URLs of `scheme` by the transport class at `path` ("module:Class") from now on, in this process."""
    TRANSPORT_ALIASES[scheme] = path


# celery


def log_shutdowns(log: Callable[[str], object]) -> None:
    """Make Celery's worker in this process give `log` the text that it would print when it is told to stop."""
    worker_app.safe_say = lambda message, *_: log(message)


CONFIRMED_WITHIN = 30.0  # s that Redis has to confirm subscriptions to results; later they are taken for confirmed
COMPRESSED_RESULT: bytes = COMPRESSED_PAYLOAD_MAGIC  # the first bytes of a stored result that is compressed


class _Loader(AppLoader):  # type: ignore[misc]
    def read_configuration(self, env: str = "") -> None:
        """Read no module of settings, though CELERY_CONFIG_MODULE may name one."""


class _Settings(Settings):  # type: ignore[misc]
    """Settings whose URLs are those that the app was given; in Celery's, CELERY_BROKER_URL and the like go before."""

    broker_url = property(lambda self: self.get("broker_url"))
    broker_read_url = broker_write_url = broker_url
    result_backend = property(lambda self: self.get("result_backend"))


class App(Celery):  # type: ignore[misc]
    """A Celery app that may prepare its result backend, of which each thread has one.

    Variables of the environment that begin with CELERY_, as another program's app needs them, change nothing in it.
    """

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, loader=_Loader, **named)
        # Celery changes this object, but never replaces it. A plain assignment would add a setting.
        object.__setattr__(self._conf, "__class__", _Settings)

    def prepare_backend(self, backend: Any) -> None:
        """Prepare a new result backend; does nothing by default."""

    def _get_backend(self) -> Any:
        self.loader.override_backends["sentinel"] = f"{__name__}:_SentinelBackend"
        backend = super()._get_backend()
        self.prepare_backend(backend)
        return backend


class _SentinelBackend(RedisBackend):  # type: ignore[misc]
    """Results in the Redis that sentinels name; Celery's own does not read the service's name in the URL."""

    def as_uri(self, include_password: bool = False) -> str:
        return str(self.url) if include_password else str(redis_client.SentinelURL.read(self.url))

    def _params_from_url(self, url: str, defaults: dict[str, Any]) -> dict[str, Any]:
        redis_client.SentinelURL.read(url)  # raises at once for a wrong URL
        where = ("host", "port", "db", "username", "password")
        return {name: value for name, value in defaults.items() if name not in where and value is not None}

    def _get_pool(self, **options: Any) -> Any:
        return redis_client.connect(self.url, **options).connection_pool


def retry_redis(backend: Any, retry: Any) -> None:
    """Make a Redis result backend, not yet connected, try again as the redis-py `Retry` says.

    It misses no result that is stored while its connection is broken.
    """
    backend.connparams["retry"] = retry
    if "ssl_check_hostname" in backend.connparams:  # the URL's text
        checked = str(backend.connparams["ssl_check_hostname"]).lower() not in ("false", "no", "0")
        backend.connparams["ssl_check_hostname"] = checked
    backend._get_client = lambda: _ResultClient
    mine = backend.result_consumer
    backend.result_consumer = _ResultConsumer(
        backend, mine.app, mine.accept, mine._pending_results, mine._pending_messages
    )


class _ResultClient(redis.Redis):
    """A client whose subscriptions raise when their connection breaks, while commands are tried again.

    If redis-py subscribed anew by itself, Celery would not know that it has to look for results that came in between.
    """

    def pubsub(self, **options: Any) -> PubSub:
        pool = copy.copy(self.connection_pool)
        pool.connection_kwargs = {**pool.connection_kwargs, "retry": Retry(NoBackoff(), 0)}
        pool.reset()  # its connections are its own
        return PubSub(pool, **options)


class _ResultConsumer(ResultConsumer):  # type: ignore[misc]
    """Celery's looks for results on one connection, subscribes on another, and misses what comes in between.

    This one looks once more when Redis has confirmed the subscriptions.
    """

    def on_wait_for_pending(self, result: Any, **options: Any) -> None:
        with self.reconnect_on_error():
            self._until_subscribed()
        super().on_wait_for_pending(result, **options)

    def _reconnect_pubsub(self) -> None:
        super()._reconnect_pubsub()
        with self._locked():
            self._until_subscribed()
            keys = list(self.subscribed_to)
            for found in self.backend.client.mget(keys) if keys else ():
                if found:
                    self.on_state_change(self._decode_result(found), None)

    def _until_subscribed(self) -> None:
        """Take in what Redis says up to its answer to a ping, which follows all subscriptions that were sent before."""
        with self._locked():
            pubsub, limit = self._pubsub, time.monotonic() + CONFIRMED_WITHIN
            if pubsub is None or not pubsub.subscribed:
                return
            pubsub.ping()
            while time.monotonic() < limit:
                message = pubsub.get_message(timeout=1.0) or {"type": "none"}
                if message["type"] == "message":
                    self.on_state_change(self._decode_result(message["data"]), message)
                elif message["type"] == "pong":
                    return


def give_up_result(backend: Any, result: Any) -> None:
    """Make a result backend stop listening for `result`, which nobody waits for."""
    backend.on_result_fulfilled(result)


class Pool(BasePool):  # type: ignore[misc]
    """Base of worker pools."""

    def info_besides(self) -> dict[str, Any]:
        """Return what remote control tells of the pool in addition to Celery's own."""
        return {}

    @property
    def terminated(self) -> bool:
        """Return whether a cold stop was asked for."""
        return bool(self._state == self.TERMINATE)

    def _get_info(self) -> dict[str, Any]:
        return {**super()._get_info(), **self.info_besides()}


def request_class(task: Any, consumer: Any, app: Any) -> Any:
    """Return the class of the requests of `task` in a Celery worker."""
    request, pool, eventer = symbol_by_name(task.Request), consumer.pool, consumer.event_dispatcher
    return create_request_cls(request, task, pool, consumer.hostname, eventer, app=app)


def links_of(request: Any) -> dict[str, Any]:
    """Return the chord, chain and callbacks of a Celery request that has been decoded."""
    return request._payload[2] or {}


def tracer_of(task: Any) -> Any:
    """Return the tracer of `task`, for Celery's bookkeeping: result backend, chord, callbacks, chain, signals."""
    return task.__trace__


def new_tracer(app: Any, task: Any, hostname: str) -> Any:
    """Build the tracer of a task that no Celery consumer has registered."""
    return build_tracer(task.name, task, app.loader, hostname, app=app)


# Python


def stack_of(thread: int) -> str:
    """Return the stack of a thread, by its identifier, as text; "" where it has ended."""
    frame = sys._current_frames().get(thread)
    return "" if frame is None else "".join(traceback.format_stack(frame))
