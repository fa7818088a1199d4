"""Celery's bookkeeping of a call that a worker ran or did not run: result backend, chord, callbacks, chain, signals."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import redis
from billiard.einfo import ExceptionInfo
from celery import signals, states
from celery.app.task import Context
from celery.exceptions import BackendError, TaskRevokedError
from celery.utils.log import get_logger

from tasks.app.formats import answering, answers_json
from tasks.app.outcome import ENDS_WORKER, EXPIRED, DeadLetter, Dropped, failed, for_celery, text_of
from tasks.brokers import GONE
from tasks.worker.running import Arguments
from warren.errors import BrokerError

logger = get_logger(__name__)

AWAY = (redis.RedisError, BackendError, BrokerError, *GONE)  # errors that pass when a server is back

_outcome = threading.local()


def replayed() -> tuple[Any] | None:
    """Return the outcome that this thread is recording, in a tuple; None outside of `record`."""
    kept: tuple[Any] | None = getattr(_outcome, "value", None)
    return kept


def record(task: Any, trace: Callable[..., Any], outcome: Any, call: Arguments, request: Any, content_type: str) -> Any:
    """Let Celery record the outcome of a call; return the ExceptionInfo of the error, or None.

    An outcome that Celery cannot record is a failure. Raises one of AWAY when a server that it needs is away.
    """
    with answering(content_type):
        if answers_json() and request.get("ignore_result") is None:
            request = {**request, "ignore_result": False}  # its client knows no decorator, and waits unless it says so
        return _record(task, trace, outcome, call, request)


def _record(task: Any, trace: Callable[..., Any], outcome: Any, call: Arguments, request: Any) -> Any:
    try:
        if isinstance(outcome, Dropped) and isinstance(outcome.error, TaskRevokedError):
            _record_dropped(task, outcome.error, call, request)
            _fail_groups(task, outcome.error, request)
            return None
        info = _replay(task, trace, outcome, call, request)
        if isinstance(outcome, DeadLetter):
            _record_rejected(task, for_celery(outcome), call, request)
        if info is not None:
            _fail_groups(task, getattr(info.exception, "exc", info.exception), request)
        return info
    except (*ENDS_WORKER, *AWAY):
        raise
    except BaseException as error:
        why = f"the outcome of {task.name} cannot be recorded: {type(error).__name__}: {text_of(error)}"
    logger.error("%s", why)
    failure = RuntimeError(why)
    try:
        return _replay(task, trace, failed(failure), call, request)
    except (*ENDS_WORKER, *AWAY):
        raise
    except BaseException as error:
        logger.error("the failure of %s cannot be recorded either: %s", task.name, text_of(error))
    try:
        raise failure
    except RuntimeError:
        return ExceptionInfo()


def _replay(task: Any, trace: Callable[..., Any], outcome: Any, call: Arguments, request: Any) -> Any:
    """Let Celery's tracer run the task, which takes its outcome from `replayed`."""
    _outcome.value = (outcome,)
    try:
        result, info, *_ = trace(request["id"], call[0], call[1], request)
    finally:
        _outcome.value = None
    return result if info is not None and isinstance(result, ExceptionInfo) else None


def _record_dropped(task: Any, error: TaskRevokedError, call: Arguments, request: Any) -> None:
    """Do as Celery's Request does: the state is REVOKED, which ends every wait, that of chords and groups too."""
    context, why = _context(call, request), text_of(error)
    task.backend.mark_as_revoked(request["id"], why, request=context, store_result=_stores(task, request))
    signals.task_revoked.send(sender=task, request=context, terminated=False, signum=None, expired=why == EXPIRED)


def _record_rejected(task: Any, error: Exception, call: Arguments, request: Any) -> None:
    """Do as Celery's Request does with a call that will never run again."""
    context = _context(call, request)
    task.backend.mark_as_failure(request["id"], error, request=context, store_result=_stores(task, request))


def _fail_groups(task: Any, error: Exception, request: Any) -> None:
    """Fail the members of groups further on in the chain: Celery does so with its single tasks alone."""
    if _stores(task, request):
        for member in _members(request.get("chain")):
            task.backend.store_result(member, error, states.FAILURE)


def _members(signatures: Any, within: bool = False) -> Iterator[str]:
    """Yield the ids of all tasks in groups among `signatures`."""
    for signature in signatures or ():
        tasks = (signature.get("kwargs") or {}).get("tasks")
        if signature.get("subtask_type") in ("group", "chain") and isinstance(tasks, list | tuple):
            yield from _members(tasks, within or signature["subtask_type"] == "group")
        elif within and (found := (signature.get("options") or {}).get("task_id")):
            yield found


def _context(call: Arguments, request: Any) -> Context:
    return Context(request, args=call[0], called_directly=False, kwargs=call[1])


def _stores(task: Any, request: Any) -> bool:
    ignored = request.get("ignore_result")
    return not (task.ignore_result if ignored is None else ignored) or bool(task.store_errors_even_if_ignored)
