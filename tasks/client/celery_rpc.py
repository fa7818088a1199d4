"""Calls by Celery's own client, for brokers without direct reply-to (Redis): slower, the same answers and errors."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

import redis
from amqp.exceptions import AMQPError
from celery import states
from celery.utils.log import get_logger
from kombu.exceptions import InconsistencyError, OperationalError

from tasks import brokers
from tasks.admin.registry import Directory
from tasks.app.outcome import CELERYS
from tasks.brokers import Broker
from tasks.client.call_errors import CLOSED, failure_of, unserved
from tasks.client.call_frames import CallFrames
from tasks.client.call_table import CallTable
from tasks.client.driver import Driver
from tasks.client.future import Handle
from tasks.client.long_bodies import PlainBodies
from tasks.codec.encoder import pack
from tasks.service import Spec
from tasks.topology import Topology
from warren.errors import BrokerError, CallError, DeadlinePassed

logger = get_logger(__name__)

POLL_EVERY = (0.001, 0.02)  # s between looks for results, doubled from the first to the second
HELD_FOR = 900.0  # s that a worker holds a call for its time at most
TEND_FOR = 1.0  # s that `tend` looks for results of an event loop's calls before it returns


class StockClient(Driver):
    """`app.send_task` sends, and results are looked for in the result backend, all of them by one command.

    Each of several threads that wait looks for its own call alone. For an event loop, `tend` sends and looks.
    """

    poll_every = 0.02
    link = None  # nothing that a loop could watch

    def __init__(
        self, app: Any, topology: Topology, directory: Directory, patience: float, *, may_block: bool = True
    ) -> None:
        table = CallTable(CallFrames(topology), patience)
        table.confirming = True  # send_task returns when the broker has the message
        super().__init__(app, table, PlainBodies(), may_block)
        self._directory = directory
        self._tending = threading.Lock()
        self._new = threading.Event()  # set when a call is to be sent

    def _submit(self, spec: Spec, calls: Sequence[Handle]) -> None:
        if self._closed:
            raise BrokerError(CLOSED)
        self.table.send_later(calls)
        if self._may_block:
            self._send_due()
        else:
            self._new.set()

    def _send_due(self) -> None:
        for call in self.table.take_due(time.monotonic()):
            args, kwargs = call.args_body
            left = None if call.time_to_live is None else max(0.001, call.deadline - time.monotonic())
            try:
                self._app.send_task(
                    call.spec.name, args=args, kwargs=kwargs, task_id=call.id, expires=left,
                    ignore_result=not call.spec.response, argsrepr="", kwargsrepr="",
                    **_options(brokers.of(self._app), call),
                )  # fmt: skip
            except InconsistencyError:  # kombu: no queue is bound, so the service was never served
                self.table.fail(call, unserved(self._directory, call.spec.name, 0.0))
            except (OSError, AMQPError, OperationalError) as error:
                self.table.fail(call, BrokerError(f"the broker is away: {error}"))
            except Exception as error:  # arguments that cannot be sent
                self.table.fail(call, error)
            else:
                if not call.spec.response:
                    self.table.end(call)

    def wait(self, handle: Handle, timeout: float | None = None) -> None:
        """See Driver."""
        limit = handle.deadline if timeout is None else min(handle.deadline, time.monotonic() + timeout)
        pause = POLL_EVERY[0]
        while not handle.ended:
            self._look_at([handle])
            if handle.ended:
                return
            if time.monotonic() >= limit:
                if handle.deadline > limit:
                    raise TimeoutError(f"{handle.spec.name} has not answered within {timeout:g} s")
                self.expire()
                continue
            time.sleep(pause)
            pause = min(2 * pause, POLL_EVERY[1])

    def poll(self) -> None:
        """See Driver."""
        if self._may_block:
            self._look_at(self.table.sent())

    def look_for(self, seconds: float) -> None:
        """See Driver."""
        self.poll()

    def expire(self) -> None:
        """See Driver."""
        self.table.expire(time.monotonic())

    @property
    def longest_delay(self) -> float:
        """See Driver. A delayed call waits in a worker, and must begin before the broker would deliver it again."""
        return float((self._app.conf.broker_transport_options or {}).get("visibility_timeout", 2 * HELD_FOR)) / 2

    @property
    def needs_tending(self) -> bool:
        """See Driver."""
        return not self._may_block and len(self.table) > 0

    def tend(self) -> None:
        """See Driver. For an event loop it goes on for TEND_FOR while calls are under way."""
        if not self._tending.acquire(blocking=False):
            return
        try:
            limit, pause = time.monotonic() + (0.0 if self._may_block else TEND_FOR), POLL_EVERY[0]
            while True:
                self._new.clear()
                self._send_due()
                before = len(self.table)
                self._look_at(self.table.sent())
                self.expire()
                if not self.table or self._closed or time.monotonic() >= limit:
                    return
                pause = POLL_EVERY[0] if len(self.table) != before else min(2 * pause, POLL_EVERY[1])
                self._new.wait(pause)
        finally:
            self._tending.release()

    def drop(self) -> None:
        """See Driver."""
        self._closed = True

    def close(self) -> None:
        """See Driver."""
        self._closed = True
        self.table.fail_all(BrokerError(CLOSED))

    def _look_at(self, calls: Sequence[Handle]) -> None:
        """End those of `calls` whose result is there."""
        if not calls:
            return
        backend = self._app.backend
        try:
            found = backend.mget([backend.get_key_for_task(call.id) for call in calls])
        except redis.RedisError as error:
            for call in calls:
                self.table.fail(call, BrokerError(f"cannot look for the result of {call.spec.name}: {error}"))
            return
        for call, value in zip(calls, found, strict=True):
            meta = backend.decode(value) if value else {"status": states.PENDING}
            if meta["status"] == states.SUCCESS:
                self.table.end(call, pack(meta["result"]))
            elif meta["status"] in states.EXCEPTION_STATES:
                self.table.fail(call, _failure(backend, call, meta))
            else:
                continue
            try:
                backend.forget(call.id)
            except redis.RedisError as error:  # the call has ended well all the same
                logger.debug("a result of %s stays until it expires: %s", call.spec.name, error)


def _options(broker: Broker, call: Handle) -> dict[str, Any]:
    """Return Celery's options for a call's headers, priority and delay."""
    spec, extra = call.spec, call.extra
    options: dict[str, Any] = {} if extra is None else {"headers": extra.call.headers}
    if spec.priorities:  # without one, a message would be of the highest
        options["priority"] = broker.priority((extra and extra.priority) or 0, spec.priorities)
    if extra is not None and extra.delay:
        options["countdown"] = extra.delay / 1000.0
    return options


def _failure(backend: Any, call: Handle, meta: dict[str, Any]) -> CallError:
    """Return the error for what a worker stored in the place of a result."""
    stored, name = meta["result"], call.spec.name
    error = backend.exception_to_python(stored)
    if meta["status"] == states.REVOKED:
        return DeadlinePassed(name, f"{name} was dropped by its worker: {error}")
    cls = type(error)
    kind, module = cls.__qualname__, cls.__module__
    if isinstance(stored, dict):  # its module may be unknown here, and its class made up
        kind, module = str(stored.get("exc_type", kind)), str(stored.get("exc_module") or "builtins")
    kind = kind if module == "builtins" else f"{module}.{kind}"
    return failure_of(call, CELERYS.get(kind, kind), str(error), str(meta.get("traceback") or ""))
