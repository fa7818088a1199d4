"""Calls that were revoked, by id or by a stamp. A worker drops them when their turn comes.

A call that has begun runs on, but an `async def` is cancelled.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from celery.utils.log import get_logger
from celery.worker import state as worker_state
from celery.worker.control import control_command

logger = get_logger(__name__)

NO_TERMINATION = (
    "revoked; terminate is not possible: a call runs in a thread of its worker, which cannot be interrupted. "
    "One that has begun ends by itself; only an async def is cancelled"
)


def is_revoked(headers: Mapping[str, Any]) -> bool:
    """Return True for the headers of a call that was revoked."""
    if worker_state.revoked and headers["id"] in worker_state.revoked:
        return True
    if not worker_state.revoked_stamps:
        return False
    stamps = headers.get("stamps") or {}
    now_revoked = list(worker_state.revoked_stamps.items())  # remote control, in another thread, may add to them
    return any(not _all(stamps.get(name)).isdisjoint(_all(revoked)) for name, revoked in now_revoked)


def _all(values: Any) -> set[str]:
    return {str(one) for one in values} if isinstance(values, list | tuple | set) else {str(values)} - {"None"}


@control_command(name="revoke", variadic="task_id", signature="[id1 [id2 [... [idN]]]]")  # type: ignore[untyped-decorator]
def _revoke(control: Any, task_id: Any, terminate: bool = False, **__: Any) -> dict[str, str]:
    """Revoke tasks by id.

    Celery's own also stores the state REVOKED at once, even of calls that are running and would be SUCCESS after it.
    """
    ids = {str(one) for one in task_id} if isinstance(task_id, list | tuple | set) else {str(task_id)}
    worker_state.revoked.update(ids)
    return _answer(control, f"tasks {ids} flagged as revoked", terminate)


@control_command(name="revoke_by_stamped_headers", variadic="headers", signature="[key1=value1 [... [keyN=valueN]]]")  # type: ignore[untyped-decorator]
def _revoke_by_stamps(control: Any, headers: Any, terminate: bool = False, **__: Any) -> dict[str, str]:
    """Revoke tasks by their stamps."""
    found = headers if isinstance(headers, Mapping) else dict(one.split("=", 1) for one in headers)
    for name, values in found.items():
        known = _all(worker_state.revoked_stamps.get(name))
        worker_state.revoked_stamps[name] = sorted(known | _all(values))
    return _answer(control, f"headers {found} flagged as revoked", terminate)


def _answer(control: Any, done: str, terminate: bool) -> dict[str, str]:
    receiver = getattr(control.app, "warren_receiver", None)
    gathering = getattr(control.consumer, "warren_gathering", None)
    if receiver is not None:
        receiver.revoked()
    elif gathering is not None and gathering.tasks is not None:
        gathering.tasks.look_for_revoked()
    if terminate:
        logger.warning("%s", NO_TERMINATION)
        return {"error": NO_TERMINATION}
    return {"ok": done}
