"""Runs the hooks of the user's middleware around calls; an error of a hook affects its call, never the worker."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from celery.utils.log import get_logger

from tasks.app.outcome import ENDS_WORKER, Outcome, failed, outcome_of
from tasks.middleware import Call, Middleware, Raw, hook_of, overridden, view_of

logger = get_logger(__name__)


class Hooks:
    """Hooks around the calls of one worker's services. A service that runs elsewhere calls `before` and `after`."""

    @classmethod
    def of(cls, middleware: Sequence[Middleware]) -> Hooks | None:
        """Return the hooks of `middleware`; None where none of them concerns calls that a worker receives."""
        hooks = cls(middleware)
        return hooks if hooks._around or hooks._dropped else None

    def __init__(self, middleware: Sequence[Middleware]) -> None:
        both = [(hook_of(one, "before_run"), hook_of(one, "after_run")) for one in middleware]
        self._around = [pair for pair in both if pair != (None, None)]
        self._dropped = overridden(middleware, "after_drop")

    def run(self, service: str, calls: Sequence[Any], run: Callable[[Sequence[Any]], list[Any]]) -> list[Any]:
        """Run the calls that the hooks let pass by `run`, all at once; return one outcome per call."""
        if not self._around:
            return run(calls)
        before = [self.before(service, raw) for raw in calls]
        passed = [raw for raw, outcome in zip(calls, before, strict=True) if outcome is None]
        ran = iter(run(passed) if passed else ())
        return [
            self.after(service, raw, next(ran)) if outcome is None else outcome
            for raw, outcome in zip(calls, before, strict=True)
        ]

    async def arun(
        self, service: str, calls: Sequence[Any], run: Callable[[Sequence[Any]], Awaitable[list[Any]]]
    ) -> list[Any]:
        """Run calls as `run`, in an event loop. Raises what `run` raises, for calls that were cancelled."""
        if not self._around:
            return await run(calls)
        before = [self.before(service, raw) for raw in calls]
        passed = [raw for raw, outcome in zip(calls, before, strict=True) if outcome is None]
        try:
            ran = iter(await run(passed) if passed else ())
        except BaseException as error:
            for raw in passed:
                self.after(service, raw, failed(error))
            raise
        return [
            self.after(service, raw, next(ran)) if outcome is None else outcome
            for raw, outcome in zip(calls, before, strict=True)
        ]

    def before(self, service: str, raw: Raw) -> Outcome | None:
        """Run the hooks that come before a call; return its outcome where one of them has raised, else None."""
        call = view_of(service, raw)
        for passed, (hook, _) in enumerate(self._around):
            try:
                if hook is not None:
                    hook(call)
            except BaseException as error:
                outcome: Outcome = self._after(call, _outcome(error), passed)
                return outcome
        return None

    def after(self, service: str, raw: Raw, outcome: Any) -> Any:
        """Run the hooks that come after a call; return its outcome, which one of them may have made a failure."""
        return self._after(view_of(service, raw), outcome, len(self._around))

    def _after(self, call: Call, outcome: Any, entered: int) -> Any:
        for _, hook in reversed(self._around[:entered]):
            if hook is None:
                continue
            try:
                if isinstance(outcome, Outcome):
                    hook(call, error=outcome.error)
                else:
                    hook(call, result=outcome)
            except BaseException as error:
                if isinstance(outcome, Outcome):
                    logger.exception("after_run of a call of %s, which had failed, failed too", call.service)
                else:
                    outcome = _outcome(error)
        return outcome

    def drop(self, service: str, raw: Raw, reason: str) -> None:
        """Run the hooks of a call that nobody needs any more."""
        for hook in self._dropped:
            _logged(hook, view_of(service, raw), reason)


def boot(middleware: Sequence[Middleware], worker: str) -> None:
    """Run the hooks of a worker that is about to start. Raises what they raise."""
    for hook in overridden(middleware, "before_worker_boot"):
        hook(worker)


def shut_down(middleware: Sequence[Middleware], worker: str) -> None:
    """Run the hooks of a worker that has ended, the last one first."""
    for hook in reversed(overridden(middleware, "after_worker_shutdown")):
        _logged(hook, worker)


def _logged(hook: Callable[..., Any], *arguments: Any) -> None:
    try:
        hook(*arguments)
    except BaseException as error:
        logger.error("%s of middleware failed\n%s", hook.__name__, failed(error).traceback)


def _outcome(error: BaseException) -> Outcome:
    """Return the outcome of a call whose hook raised `error`: unlike a service, a hook cannot end the worker."""
    return failed(error) if isinstance(error, ENDS_WORKER) else outcome_of(error)
