"""Calls by Celery's own client, for brokers without direct reply-to (Redis): slower, the same answers and errors."""

from __future__ import annotations

import time
from typing import Any

from amqp.exceptions import AMQPError
from celery import states
from celery.utils.log import get_logger
from kombu.exceptions import InconsistencyError, OperationalError

from tasks.admin.registry import Directory
from tasks.amqp.messages import Ids
from tasks.client.caretaker import caretaker
from tasks.client.future import Handle
from tasks.client.long_bodies import PlainBodies
from tasks.client.service_watch import unserved
from tasks.codec.encoder import pack
from tasks.service import Spec
from tasks.topology import Topology
from warren.errors import BrokerError, CallCancelled, CallError, DeadlinePassed, RemoteFailure

logger = get_logger(__name__)

POLL_EVERY = (0.001, 0.02)  # s between polls for results, doubled from the first to the second


class StockClient:
    """The same interface as `Client`, over `app.send_task` and the result backend."""

    unconfirmed = 0  # send_task returns when the broker has the message
    needs_tending = False
    link = None  # nothing that a loop could watch: results are looked for

    def __init__(
        self, app: Any, topology: Topology, directory: Directory, patience: float, *, may_block: bool = True
    ) -> None:
        self._app, self._topology, self._directory, self._patience = app, topology, directory, patience
        self._pending: dict[str, Handle] = {}
        self.bodies = PlainBodies()
        self._ids = Ids()
        self._failures: list[Exception] = []
        self.failed = 0
        self._attended: set[str] = set()  # ids of calls with a callback

    @property
    def under_way(self) -> int:
        """See Client."""
        return len(self._pending)

    def submit(self, spec: Spec, args: Any, kwargs: Any, time_to_live: float | None) -> Handle:
        """See Client."""
        handle = Handle(self, spec, self._ids.new(), b"", time_to_live)
        pack((args, kwargs))  # a value outside the format fails here, as it does in Client
        try:
            self._app.send_task(
                spec.name, args=args, kwargs=kwargs, task_id=handle.id, expires=time_to_live,
                ignore_result=not spec.response, argsrepr="", kwargsrepr="",
            )  # fmt: skip
        except InconsistencyError:  # kombu: no queue is bound, so nobody has ever served it
            handle.settle(failure=unserved(self._directory, spec.name, 0.0))
        except (OSError, AMQPError, OperationalError) as error:
            handle.settle(failure=BrokerError(f"the broker is away: {error}"))
        if not spec.response:
            if handle.ended:
                self.failed += 1
                self._failures.append(handle.failure or CallError(spec.name, "it was not sent"))
                logger.error("a one-way call of %s is lost: %s", spec.name, handle.failure)
            else:
                handle.settle()
        if not handle.ended:
            self._pending[handle.id] = handle
        return handle

    def submit_packed(self, spec: Spec, body: Any, time_to_live: float | None) -> Handle:
        """See Client."""
        args, kwargs = body
        return self.submit(spec, args, kwargs, time_to_live)

    def submit_all(self, spec: Spec, calls: Any, time_to_live: float | None) -> list[Handle]:
        """See Client."""
        return [self.submit(spec, args, {}, time_to_live) for args in calls]

    def wait(self, handle: Handle, timeout: float | None = None) -> None:
        """See Client."""
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
        """See Client."""
        self._look_at(list(self._pending.values()))

    def look_for(self, seconds: float) -> None:
        """See Client."""
        self.poll()

    def expire(self) -> None:
        """See Client."""
        now = time.monotonic()
        for handle in [handle for handle in self._pending.values() if handle.deadline <= now]:
            name = handle.spec.name
            late = f"{name} did not answer within {handle.time_to_live:g} s; give it more, or more workers"
            self._end(handle, failure=DeadlinePassed(name, late))

    def cancel(self, handle: Handle) -> bool:
        """See Client."""
        if handle.ended:
            return False
        self._end(handle, failure=CallCancelled(handle.spec.name, f"the call of {handle.spec.name} was cancelled"))
        self._app.control.revoke(handle.id)
        return True

    def tend(self) -> None:
        """See Client."""
        self.poll()
        self.expire()

    @property
    def attended(self) -> int:
        """See Client."""
        return len(self._attended)

    def attend(self, handle: Handle) -> None:
        """See Client."""
        self._attended.add(handle.id)
        handle.when_ended(lambda ended: self._attended.discard(ended.id))
        caretaker.watch(self)

    def take_failures(self) -> list[Exception]:
        """See Client."""
        failures, self._failures = self._failures, []
        return failures

    def close(self) -> None:
        """See Client."""
        for handle in list(self._pending.values()):
            self._end(handle, failure=BrokerError("the Solver was closed"))

    def _look_at(self, handles: list[Handle]) -> None:
        for handle in handles:
            meta = self._app.backend.get_task_meta(handle.id)
            if meta["status"] == states.SUCCESS:
                self._end(handle, pack(meta["result"]))
            elif meta["status"] in states.EXCEPTION_STATES:
                error = meta["result"]
                name = handle.spec.name
                failure: CallError = RemoteFailure(
                    name, type(error).__name__, str(error), str(meta.get("traceback") or "")
                )
                if meta["status"] == states.REVOKED:
                    failure = DeadlinePassed(name, f"{name} was dropped by its worker: {error}")
                self._end(handle, failure=failure)
            else:
                continue
            self._app.backend.forget(handle.id)

    def _end(self, handle: Handle, body: bytes | None = None, failure: Exception | None = None) -> None:
        self._pending.pop(handle.id, None)
        handle.settle(body, failure)
