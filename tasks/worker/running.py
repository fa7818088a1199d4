"""Running a batch of calls: one outcome per call, whatever the function does, and Celery's bookkeeping for each."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any

from celery.utils.log import get_logger

from tasks.app.outcome import ENDS_WORKER, Failed, Outcome, failed, outcome_of_service
from tasks.app.steps import Steps, drive
from tasks.middleware import Call, running

logger = get_logger(__name__)

Arguments = tuple[Sequence[Any], dict[str, Any]]  # one call's: positional, by keyword
GivenUp = Callable[[], bool]


class LocalCall:
    """A call that came without a message, to be run here."""

    __slots__ = ("args", "headers", "id", "kwargs", "view")

    def __init__(self, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        self.args, self.kwargs, self.id = args, kwargs, ""
        self.headers: dict[str, Any] = {}
        self.view: Call | None = None


def run(name: str, function: Callable[..., Any], batch: int, calls: Sequence[Any], isolate: bool) -> list[Any]:
    """Run `calls` (objects with `args` and `kwargs`); return one outcome per call, in order: a result, or an Outcome.

    `batch` 1: `function` gets each call's arguments. Over 1: it gets the list of them, once; it may return an exception
    in the place of a result, which fails that call alone. When it raises, all fail; with `isolate` each of several is
    first run again alone, so that only those at fault fail. Raises only errors that end the worker.
    """
    if batch == 1:
        return [_run_one(name, function, call) for call in calls]
    return drive(_in_batches(name, calls, isolate), partial(_run_batch, name, function))


async def arun(
    name: str, function: Callable[..., Any], batch: int, calls: Sequence[Any], isolate: bool, given_up: GivenUp
) -> list[Any]:
    """Run calls as `run`, of an `async def` function. Once `given_up` returns True, raises the function's errors."""
    if batch == 1:
        return [await _arun_one(name, function, call, given_up) for call in calls]
    steps = _in_batches(name, calls, isolate)
    try:
        some = next(steps)
        while True:
            running.set((name, some))
            try:
                results = list(await function(_arguments(some)))
            except BaseException as error:
                if given_up():
                    raise
                some = steps.throw(error)
            else:
                some = steps.send(results)
    except StopIteration as done:
        outcomes: list[Any] = done.value
        return outcomes


def _run_one(name: str, function: Callable[..., Any], call: Any) -> Any:
    before = running.set((name, (call,)))
    try:
        return function(*call.args, **call.kwargs)
    except BaseException as error:
        return outcome_of_service(error)
    finally:
        running.reset(before)


async def _arun_one(name: str, function: Callable[..., Any], call: Any, given_up: GivenUp) -> Any:
    running.set((name, (call,)))  # in the context of its own asyncio task
    try:
        return await function(*call.args, **call.kwargs)
    except BaseException as error:
        if given_up():
            raise
        return outcome_of_service(error)


def _run_batch(name: str, function: Callable[..., Any], calls: list[Any]) -> list[Any]:
    before = running.set((name, calls))
    try:
        return list(function(_arguments(calls)))
    finally:
        running.reset(before)


def _arguments(calls: Sequence[Any]) -> list[Any]:
    return [call.args[0] if len(call.args) == 1 else tuple(call.args) for call in calls]


def _in_batches(name: str, calls: Sequence[Any], isolate: bool) -> Steps:
    """Yield the calls that the function is to run together, be sent what it returned; return one outcome per call."""
    if any(call.kwargs for call in calls):  # they cannot be part of a batch: each of them fails alone
        fitting = [call for call in calls if not call.kwargs]
        found = iter((yield from _in_batches(name, fitting, isolate)) if fitting else ())
        return [_not_by_keyword(name, call.kwargs) if call.kwargs else next(found) for call in calls]
    try:
        results = yield list(calls)
        if len(results) != len(calls):
            raise ValueError(
                f"{name} was called with {len(calls)} calls and returned {len(results)} results; "
                "a batch service returns one result a call, in order"
            )
    except GeneratorExit:
        raise
    except BaseException as error:
        outcome = outcome_of_service(error)
    else:
        return [_returned(result) if isinstance(result, BaseException) else result for result in results]
    if isolate and len(calls) > 1 and isinstance(outcome, Failed):
        told = f"{outcome.kind}: {outcome.message}"
        logger.warning("%s failed for a batch of %d (%s); running each call alone", name, len(calls), told)
        outcomes = []
        for call in calls:
            outcomes += yield from _in_batches(name, [call], False)
        return outcomes
    return [outcome] * len(calls)


def _returned(error: BaseException) -> Outcome:
    """Return the outcome of a call whose result is an error: one that is returned ends no worker."""
    return failed(error) if isinstance(error, ENDS_WORKER) else outcome_of_service(error)


def _not_by_keyword(name: str, kwargs: dict[str, Any]) -> Outcome:
    given = ", ".join(kwargs)
    return failed(TypeError(f"{name} runs calls in batches, so it takes no arguments by keyword; got {given}"))


_recording = threading.local()


def acknowledge_after(done: Future[Any]) -> None:
    """Acknowledge the calls of the batch that runs in this thread once `done` is done, however it ends.

    The next batch runs meanwhile. For Celery's strategy on OneThreadPool.
    """
    _recording.value = done


def recording() -> Future[Any] | None:
    """Return the future that the last batch in this thread gave to `acknowledge_after`, once; then None."""
    done: Future[Any] | None = getattr(_recording, "value", None)
    _recording.value = None
    return done
