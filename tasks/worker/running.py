"""Running a batch of calls: one outcome a call, whatever the function does, and Celery's bookkeeping for each."""

from __future__ import annotations

import threading
import traceback as tracebacks
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from billiard.einfo import ExceptionInfo
from celery.utils.log import get_logger

logger = get_logger(__name__)

Arguments = tuple[Sequence[Any], dict[str, Any]]  # of one call: positional, by keyword


@dataclass(frozen=True)
class Failed:
    """The outcome of a call that raised, with the worker's traceback as text."""

    error: Exception
    traceback: str

    @property
    def kind(self) -> str:
        """Name of the error's class, with its module where that is not the language's own."""
        cls = type(self.error)
        return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"


def failed(error: Exception) -> Failed:
    """`error` as an outcome."""
    return Failed(error, "".join(tracebacks.format_exception(error)))


def run(name: str, function: Callable[..., Any], batch: int, calls: Sequence[Arguments], isolate: bool) -> list[Any]:
    """One outcome a call, in order: a result, or Failed.

    `batch` 1: `function` gets each call's arguments. Over 1: it gets the list of them, once; it may return an exception
    in the place of a result, which fails that call alone. When it raises, all fail; with `isolate` each of several is
    run again alone first, so that only those fail that are at fault.
    """
    if batch == 1:
        return [_run_one(function, args, kwargs) for args, kwargs in calls]
    try:
        results = list(function([_item(name, args, kwargs) for args, kwargs in calls]))
        if len(results) != len(calls):
            raise ValueError(
                f"{name} was called with {len(calls)} calls and returned {len(results)} results; "
                "a batch service returns one result a call, in order"
            )
    except Exception as error:
        if isolate and len(calls) > 1:
            logger.warning("%s failed for a batch of %d (%r); running each call alone", name, len(calls), error)
            return [run(name, function, batch, [call], False)[0] for call in calls]
        return [failed(error)] * len(calls)
    return [failed(result) if isinstance(result, Exception) else result for result in results]


def _run_one(function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    try:
        return function(*args, **kwargs)
    except Exception as error:
        return failed(error)


def _item(name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """What one call contributes to the list that a batch function receives."""
    if kwargs:
        raise TypeError(f"{name} runs calls in batches, so it takes no arguments by keyword; got {', '.join(kwargs)}")
    return args[0] if len(args) == 1 else tuple(args)


_recording = threading.local()


def acknowledge_after(done: Future[Any]) -> None:
    """Of the batch whose function runs in this thread: its calls are acknowledged once `done` is, however it ends.

    The next batch runs meanwhile. For Celery's strategy on OneThreadPool.
    """
    _recording.value = done


def recording() -> Future[Any] | None:
    """What the batch that ran in this thread last said by `acknowledge_after`; None from then on."""
    done: Future[Any] | None = getattr(_recording, "value", None)
    _recording.value = None
    return done


_outcome = threading.local()


def replayed() -> tuple[Any] | None:
    """The outcome whose bookkeeping this thread does at the moment, in a tuple; None outside of `replay`."""
    kept: tuple[Any] | None = getattr(_outcome, "value", None)
    return kept


def replay(task: Any, trace: Callable[..., Any], outcome: Any, call_id: str, call: Arguments, request: Any) -> Any:
    """Celery's own bookkeeping for a call that has been run: result backend, chord, callbacks, chain, signals.

    The ExceptionInfo of a failure, else None.
    """
    _outcome.value = (outcome,)
    try:
        result, info, *_ = trace(call_id, call[0], call[1], request)
    finally:
        _outcome.value = None
    return result if info is not None and isinstance(result, ExceptionInfo) else None
