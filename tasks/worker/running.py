"""Running a batch of calls: one outcome a call, whatever the function does, and Celery's bookkeeping for each."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

from celery.utils.log import get_logger

from tasks.app.outcome import ENDS_WORKER, Failed, Outcome, failed, outcome_of
from tasks.middleware import Call, running

logger = get_logger(__name__)

Arguments = tuple[Sequence[Any], dict[str, Any]]  # of one call: positional, by keyword


class Local:
    """A call that came in no message, to be run here."""

    __slots__ = ("args", "headers", "id", "kwargs", "view")

    def __init__(self, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        self.args, self.kwargs, self.id = args, kwargs, ""
        self.headers: dict[str, Any] = {}
        self.view: Call | None = None


def run(name: str, function: Callable[..., Any], batch: int, calls: Sequence[Any], isolate: bool) -> list[Any]:
    """Run `calls` (objects with `args` and `kwargs`) and return one outcome a call, in order: a result, or an Outcome.

    `batch` 1: `function` gets each call's arguments. Over 1: it gets the list of them, once; it may return an exception
    in the place of a result, which fails that call alone. When it raises, all fail; with `isolate` each of several is
    run again alone first, so that only those fail that are at fault. Raises nothing but what ends the worker.
    """
    if batch == 1:
        return [_run_one(name, function, call) for call in calls]
    if any(call.kwargs for call in calls):
        return _run_those_without_keywords(name, function, batch, calls, isolate)
    before = running.set((name, calls))
    try:
        results = list(function([call.args[0] if len(call.args) == 1 else tuple(call.args) for call in calls]))
        if len(results) != len(calls):
            raise ValueError(
                f"{name} was called with {len(calls)} calls and returned {len(results)} results; "
                "a batch service returns one result a call, in order"
            )
    except BaseException as error:
        outcome = outcome_of(error)
        if isolate and len(calls) > 1 and isinstance(outcome, Failed):
            told = f"{outcome.kind}: {outcome.message}"
            logger.warning("%s failed for a batch of %d (%s); running each call alone", name, len(calls), told)
            return [run(name, function, batch, [call], False)[0] for call in calls]
        return [outcome] * len(calls)
    finally:
        running.reset(before)
    return [_returned(result) if isinstance(result, BaseException) else result for result in results]


def _run_one(name: str, function: Callable[..., Any], call: Any) -> Any:
    before = running.set((name, (call,)))
    try:
        return function(*call.args, **call.kwargs)
    except BaseException as error:
        return outcome_of(error)
    finally:
        running.reset(before)


def _returned(error: BaseException) -> Outcome:
    """Return the outcome of a call whose result is an error: one that is returned ends no worker."""
    return failed(error) if isinstance(error, ENDS_WORKER) else outcome_of(error)


def _run_those_without_keywords(
    name: str, function: Callable[..., Any], batch: int, calls: Sequence[Any], isolate: bool
) -> list[Any]:
    """Run a batch without those of its calls that cannot be part of one: each of them fails alone."""
    fitting = [call for call in calls if not call.kwargs]
    found = iter(run(name, function, batch, fitting, isolate) if fitting else ())
    return [
        failed(TypeError(f"{name} runs calls in batches, so it takes no arguments by keyword; got {given}"))
        if (given := ", ".join(call.kwargs))
        else next(found)
        for call in calls
    ]


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
