"""The errors that calls end with, as their callers read them."""

from __future__ import annotations

import redis

from tasks import codec
from tasks.admin.registry import Directory
from tasks.client.future import Handle
from warren.errors import (
    BrokerError,
    CallCancelled,
    CallError,
    CodecError,
    DeadlinePassed,
    DeliveriesExceeded,
    NobodyServing,
    NoSuchService,
    RemoteFailure,
    WorkerLost,
    unknown_name,
)

CLOSED = "the Solver was closed; make another"


_EXCEEDED = f"{DeliveriesExceeded.__module__}.{DeliveriesExceeded.__qualname__}"


def remote_failure(call: Handle, body: bytes) -> CallError:
    """Return the error that a worker sent."""
    service = call.spec.name
    try:
        kind, message, traceback = codec.decode(body)
    except (CodecError, ValueError) as error:
        return RemoteFailure(service, "unknown", f"its error could not be read: {error}")
    return failure_of(call, kind, message, traceback)


def failure_of(call: Handle, kind: str, message: str, traceback: str) -> CallError:
    """Return the caller's error for an exception of that kind in a worker."""
    if kind == _EXCEEDED:
        died = f"{1 + call.spec.retries} workers died" if call.spec.retries else "the worker that ran it died"
        return WorkerLost(call.spec.name, f"{call.spec.name}: {died} with this call; see their logs")
    return RemoteFailure(call.spec.name, kind, message, traceback)


def deadline_passed(call: Handle, blocked: str) -> DeadlinePassed:
    """Return the error for a call without an answer in time. `blocked`: why the broker takes no messages, or ""."""
    remedy = f"the broker takes no messages at the moment: {blocked}" if blocked else "give it more, or more workers"
    name = call.spec.name
    return DeadlinePassed(name, f"{name} did not answer within {call.time_to_live:g} s; {remedy}")


def cancelled(call: Handle) -> CallCancelled:
    """Return the error for a call that was given up."""
    return CallCancelled(call.spec.name, f"the call of {call.spec.name} was cancelled")


def unserved(directory: Directory, name: str, waited: float, served: bool = False) -> CallError:
    """Return the error for a service that no worker has served for `waited` s; `served`: one did before."""
    if served:
        return WorkerLost(name, f"the last worker that served {name} is gone, and none came for {waited:.1f} s")
    try:
        known = directory.known()
    except redis.RedisError:
        known = {}
    if name in known or not known:
        return NobodyServing(
            name,
            f"no worker has served {name} for {waited:.1f} s; start a worker (python -m workers.services lists them)",
        )
    return NoSuchService(name, unknown_name("service", name, known, "(python -m workers.services lists them)"))


def error_of_loss(call: Handle, why: str) -> Exception | None:
    """Return the error of a call that was under way when `why` happened, or None if it may be sent again.

    The text SERVICE in `why` stands for the service's name.
    """
    name, retries = call.spec.name, call.spec.retries
    if call.spec.response:
        if call.retries < retries:
            return None
        again = f"after {call.retries} more tries" if retries else "it may have run in part"
        return WorkerLost(name, f"{why.replace('SERVICE', name)}, {again}; see the workers' logs")
    if retries:
        return None
    return BrokerError(
        f"the connection broke before the broker said whether it has a call of {name}; "
        "with retries=0 it is not sent again"
    )
